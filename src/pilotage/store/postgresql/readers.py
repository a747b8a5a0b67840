"""Sessions that read a PostgreSQL server, shared by all threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from psycopg import RawCursor

from pilotage.store.engine.bulk_statements import BulkStatement
from pilotage.store.engine.connection import Connection
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.postgresql.pipeline import ResultRows, Session

Result = TypeVar("Result")

MAX_SESSIONS = 6
"""The maximum of reading sessions, independent of the number of threads."""


class PostgresqlReaders:
    """Sessions for reading, shared by all threads: one is lent for a statement, or until the end of a snapshot."""

    def __init__(self, connect: Callable[[], Session], most: int = MAX_SESSIONS) -> None:
        self._connect = connect
        self._idle: list[PostgresqlConnection] = []
        self._free = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._closed = False

    def connection(self) -> Connection:
        reader: _SessionReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = _SessionReader(self)
        return reader

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def take(self) -> PostgresqlConnection:
        """A session, to be put back; waits while all are in use."""
        self._free.acquire()
        try:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = PostgresqlConnection(self._connect, reads_only=True)
            if connection.lost:
                connection.renew()
        except BaseException:
            self._free.release()
            raise
        return connection

    def put(self, connection: PostgresqlConnection) -> None:
        connection.rollback()
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)
        self._free.release()

    @contextlib.contextmanager
    def lent(self) -> Generator[PostgresqlConnection, None, None]:
        connection = self.take()
        try:
            yield connection
        finally:
            self.put(connection)


class _SessionReader:
    """A thread's reader: borrows a session for each statement, or one session for a snapshot."""

    dialect: Literal["postgresql"] = "postgresql"
    clock = None

    def __init__(self, pool: PostgresqlReaders) -> None:
        self._pool = pool
        self._held: PostgresqlConnection | None = None

    @property
    def in_transaction(self) -> bool:
        return self._held is not None and self._held.in_transaction

    def _call(self, what: Callable[[PostgresqlConnection], Result]) -> Result:
        if self._held is not None:
            return what(self._held)
        with self._pool.lent() as connection:
            return what(connection)

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> ResultRows:
        return self._call(lambda connection: connection.execute(sql, values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> RawCursor[tuple[Any, ...]]:
        return self._call(lambda connection: connection.executemany(sql, rows))

    def execute_bulk(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> int:
        return self._call(lambda connection: connection.execute_bulk(bulk, rows))

    def execute_later(self, sql: str, values: Sequence[Any] = (), /) -> None:
        self.execute(sql, values)

    def execute_bulk_later(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> None:
        self.execute_bulk(bulk, rows)

    def execute_bulk_returning(
        self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /
    ) -> list[tuple[Any, ...]]:
        return self._call(lambda connection: connection.execute_bulk_returning(bulk, rows))

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        if self._held is not None:
            yield from self._held.fetch_batches(sql, values, size)
            return
        with self._pool.lent() as connection:
            yield from connection.fetch_batches(sql, values, size)

    def begin(self) -> None:
        assert self._held is None
        held = self._pool.take()
        try:
            held.begin()
        except BaseException:
            self._pool.put(held)
            raise
        self._held = held

    def commit(self) -> None:
        assert self._held is not None
        held, self._held = self._held, None
        try:
            held.commit()
        finally:
            self._pool.put(held)

    def rollback(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._pool.put(held)

    def close(self) -> None:
        self.rollback()
