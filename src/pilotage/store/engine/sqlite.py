"""The embedded database: one process, one connection that writes *and checkpoints*, short read-only readers.

SQLite before 3.51.3 can lose committed writes when a second connection checkpoints (sqlite.org/wal.html, "the
WAL-reset bug"); a reader opened read-only never does. synchronous=FULL: acknowledged writes survive a power cut.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pilotage.core.errors import DiskFull, Overloaded, PilotageError
from pilotage.store.engine.bulk_statements import BulkStatement
from pilotage.store.engine.damage import damage_of

PAGE_SIZE = 2048
"""Bytes per page of a new file. A claim changes one row on a random page, so smaller pages mean less to write and to
checkpoint. Below this size bulk inserts become slower."""

CHECKPOINT_SIZE = 2_048_000
"""Bytes of the WAL that trigger a checkpoint. Rare checkpoints make longer pauses, frequent ones cost throughput."""


_ERRORS = {sqlite3.SQLITE_FULL: DiskFull, sqlite3.SQLITE_IOERR: Overloaded}
"""Errors that are not bugs, by SQLite's primary error code."""


class SqliteConnection(sqlite3.Connection):
    """A connection of Python with the verbs of `store.engine.connection.WriterConnection`, without its own mode."""

    dialect: Literal["sqlite"] = "sqlite"
    begins = "BEGIN IMMEDIATE"
    group = 32
    """The next group is processed while one waits for the disk. Larger groups would only make longer pauses."""
    commits_in_thread = True
    clock: Callable[[], float] | None = None
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
        return [returned for row in bulk.arranged(given) for returned in execute(sql, row).fetchall()]

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        cursor = self.execute(sql, values)
        while rows := cursor.fetchmany(size):
            yield rows

    def bind_to_server(self, server: str) -> None:
        """Nothing to do: a file has one server."""

    def renew(self) -> None:
        """Nothing to do: a file connection is never lost."""

    def was_committed(self) -> bool | None:
        return False

    def caller_error(self, error: BaseException) -> BaseException:
        """A full disk is not a bug: nothing was changed, and the caller may retry. Neither is a damaged file."""
        if (damage := damage_of(error)) is not None:
            return damage
        if isinstance(error, sqlite3.OperationalError) and not isinstance(error, PilotageError):
            # Errors raised by Python's module itself have no SQLite code.
            text, kind = str(error), _ERRORS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            if kind is not None:
                return kind(
                    f"the database cannot be written: {text}",
                    hint="free some space on the disk of the server's home; nothing was lost",
                    retry_after=30.0,
                )
        return error


class _SqliteReader(SqliteConnection):
    begins = "BEGIN"

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, values)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY:
                raise  # a reader that writes is a mistake of ours
            # Sorting needs disk space for temporary files, and reading some in the shared-memory file.
            translated = self.caller_error(error)
            raise (translated if translated is not error else error) from error


def set_page_size(connection: sqlite3.Connection) -> None:
    """Set the page size of a new file to `PAGE_SIZE`. A file with tables keeps its page size."""
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
    """A read-only connection for each thread."""

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
                factory=_SqliteReader,
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
    """Check the file; returns "ok" or a description of the damage."""
    return str(connection.execute("PRAGMA quick_check").fetchone()[0])
