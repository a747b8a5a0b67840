"""The embedded database: one process, one connection that writes *and checkpoints*, short read-only readers.

SQLite before 3.51.3 can lose committed writes when a second connection checkpoints (sqlite.org/wal.html, "the
WAL-reset bug"); a reader opened read-only never does. synchronous=FULL: what is acknowledged survives a power cut.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

Connection = sqlite3.Connection

WAL_PAGES = 4000
"""Checkpoint after so many pages (16 MB): rarer ones make longer pauses, more frequent ones cost throughput."""


def open_writer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
    connection.execute("PRAGMA cache_size=-65536")
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


class Readers:
    """A read-only connection for each thread that asks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA query_only=ON")
            connection.row_factory = sqlite3.Row
            self._local.connection = connection
            with self._lock:
                self._all.append(connection)
        return connection

    def close(self) -> None:
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()


def integrity(connection: sqlite3.Connection) -> str:
    """Say "ok", or what is wrong with the file."""
    return str(connection.execute("PRAGMA quick_check").fetchone()[0])
