"""Connections and statements of SQLite and PostgreSQL."""
