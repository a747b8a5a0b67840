"""Requests: their specification, the steps that follow from it, and their states."""
