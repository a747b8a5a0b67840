"""The embedded database: one process, one connection that writes *and checkpoints*, short read-only readers.

SQLite before 3.51.3 can lose committed writes when a second connection checkpoints (sqlite.org/wal.html, "the
WAL-reset bug"); a reader opened read-only never does. synchronous=FULL: what is acknowledged survives a power cut.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pilotage.core.errors import DiskFull, Overloaded, PilotageError
from pilotage.store.engine.bulk_statements import BulkStatement

PAGE_SIZE = 2048
"""Bytes of a page of a new file. A claim changes one row on a page of its own: the smaller it is the less is written,
and the less a checkpoint copies; below this, bulk insertions become slower."""

CHECKPOINT_SIZE = 2_048_000
"""Bytes of the WAL after which a checkpoint is made: rarer ones make longer pauses, more frequent ones cost throughput.
"""


_ERRORS = {sqlite3.SQLITE_FULL: DiskFull, sqlite3.SQLITE_IOERR: Overloaded}
"""Errors, by SQLite's primary code, that are no bugs."""


class SqliteConnection(sqlite3.Connection):
    """Python's own connection with the verbs of `store.connection.WriterConnection`; without a mode of its own."""

    dialect: Literal["sqlite"] = "sqlite"
    begins = "BEGIN IMMEDIATE"
    group = 32
    """While one group waits for the disk the next one is decided: larger ones would only make longer pauses."""
    commits_in_thread = True
    first: Callable[[], None] | None = None

    def begin(self) -> None:
        self.execute(self.begins)

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if self.first is not None:
            self.first()
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        if self.first is not None:
            self.first()
        return super().executemany(sql, rows)

    def execute_bulk(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> int:
        given = rows if isinstance(rows, Sequence) else list(rows)
        return self.executemany(bulk.sqlite, bulk.arranged(given)).rowcount if given else 0

    def execute_later(self, sql: str, values: Sequence[Any] = (), /) -> None:
        self.execute(sql, values)

    def execute_bulk_later(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> None:
        self.execute_bulk(bulk, rows)

    def execute_bulk_returning(
        self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /
    ) -> list[tuple[Any, ...]]:
        given = rows if isinstance(rows, Sequence) else list(rows)
        sql, execute = bulk.sqlite + bulk.returning, self.execute
        return [found for row in bulk.arranged(given) for found in execute(sql, row).fetchall()]

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        cursor = self.execute(sql, values)
        while rows := cursor.fetchmany(size):
            yield rows

    def bind_to_server(self, server: str) -> None:
        """A file has one server."""

    def renew(self) -> None:
        """A file is not lost."""

    def was_committed(self) -> bool | None:
        return False

    def caller_error(self, error: BaseException) -> BaseException:
        """A full disk is no bug: nothing was changed, and the caller may come again."""
        if isinstance(error, sqlite3.OperationalError) and not isinstance(error, PilotageError):
            # Errors that Python's module raises by itself carry no code of SQLite.
            text, kind = str(error), _ERRORS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            if kind is not None:
                return kind(
                    f"the database cannot be written: {text}",
                    hint="free some space on the disk of the server's home; nothing was lost",
                    retry_after=30.0,
                )
        return error


class _Reader(SqliteConnection):
    begins = "BEGIN"

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, values)
        except sqlite3.OperationalError as error:
            # Sorting needs room for temporary files, reading some in the file that readers and writer share.
            told = self.caller_error(error)
            raise (told if told is not error else error) from error


def set_page_size(connection: sqlite3.Connection) -> None:
    """Have the file get pages of `PAGE_SIZE` bytes if it is new; one that has tables keeps its own."""
    connection.execute(f"PRAGMA page_size={PAGE_SIZE}")


def open_writer(path: Path) -> SqliteConnection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, factory=SqliteConnection
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    [page] = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_SIZE // page}")
    connection.execute("PRAGMA cache_size=-65536")
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


class SqliteReaders:
    """A read-only connection for each thread that asks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._all: list[SqliteConnection] = []
        self._lock = threading.Lock()

    def connection(self) -> SqliteConnection:
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                f"{self._path.as_uri()}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                factory=_Reader,
            )
            connection.execute("PRAGMA query_only=ON")
            self._local.connection = connection
            with self._lock:
                self._all.append(connection)
        return connection

    def close(self) -> None:
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()


def quick_check(connection: sqlite3.Connection) -> str:
    """Say "ok", or what is wrong with the file."""
    return str(connection.execute("PRAGMA quick_check").fetchone()[0])
