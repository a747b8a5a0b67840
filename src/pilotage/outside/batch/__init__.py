"""Adapters to batch systems."""
