"""Periodic work of the server."""
