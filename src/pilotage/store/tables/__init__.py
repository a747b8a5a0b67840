"""Statements by table."""
