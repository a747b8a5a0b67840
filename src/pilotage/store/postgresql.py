"""A PostgreSQL server: one session that writes, a few that read, through psycopg 3 with plain SQL and tuples.

Statements are sent with the server's own `$1` and are prepared there once they repeat. Integers are always sent as
bigint, so that one statement is one plan. Errors that are no fault of a request come out as `Lost`, `Raced` and
`Overloaded`.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import pq
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from pilotage.core.errors import InvalidInput, Overloaded, PilotageError
from pilotage.store.bulk import Bulk
from pilotage.store.connection import Connection, GivenUp, Lost, Raced, array
from pilotage.store.copying import REPLACEMENT, block

Session = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

COPY_FROM = 256
"""Plain insertions of at least so many rows go by COPY."""
READERS = 6
"""Sessions for reading, whatever the number of threads."""
_PLACE = re.compile(r"'[^']*'|\?")
_GONE = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""SQLSTATEs, or how they begin, after which a session is of no use."""
_RACED = ("40001", "40P01", "23505")
"""The last one: another transaction has just made the same row; done again, this one finds it."""
_BUSY = ("53", "57014", "55P03")


class PostgresqlConnection:
    """One session; `store.connection.WriterConnection`.

    `connect` makes the session, at first and after each loss. Not open until `renew` is called.
    """

    dialect: Literal["postgresql"] = "postgresql"
    group = 128
    commits_beside = False
    first: Callable[[], None] | None = None

    def __init__(self, connect: Callable[[], Session], *, reads_only: bool = False) -> None:
        self._connect = connect
        self._reads_only = reads_only
        self._session: Session | None = None
        self._transaction = ""
        self._failed: Exception | None = None
        self._member = ""

    @property
    def in_transaction(self) -> bool:
        session = self._session
        return session is not None and session.pgconn.transaction_status in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
            pq.TransactionStatus.ACTIVE,
        )

    @property
    def lost(self) -> bool:
        return self._session is None or self._session.closed

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> psycopg.RawCursor[tuple[Any, ...]]:
        return self._execute(_numbered(sql), values)

    def _execute(
        self, sql: str, values: Sequence[Any], prepare: bool | None = None
    ) -> psycopg.RawCursor[tuple[Any, ...]]:
        cursor = self._cursor()
        try:
            cursor.execute(sql, values or None, binary=True, prepare=prepare)
        except psycopg.DataError as error:
            if not _has_nul(values):
                raise self._fault(error) from error
            return self._execute(sql, [_without_nul(value) for value in values], prepare)
        except psycopg.Error as error:
            raise self._fault(error) from error
        return cursor

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> psycopg.RawCursor[tuple[Any, ...]]:
        cursor = self._cursor()
        try:
            cursor.executemany(_numbered(sql), rows)
        except psycopg.Error as error:
            raise self._fault(error) from error
        return cursor

    def save(self, bulk: Bulk, rows: Iterable[Sequence[Any]], /) -> int:
        given = rows if isinstance(rows, Sequence) else list(rows)
        if not given:
            return 0
        if bulk.copy and len(given) >= COPY_FROM:
            return self._copy(bulk.copy, given)
        return sum(self._carry_out(bulk, bulk.postgresql, part).rowcount for part in bulk.passes(given))

    def save_returning(self, bulk: Bulk, rows: Iterable[Sequence[Any]], /) -> list[tuple[Any, ...]]:
        given = rows if isinstance(rows, Sequence) else list(rows)
        if not given:
            return []
        sql = bulk.postgresql + bulk.returning
        return [row for part in bulk.passes(given) for row in self._carry_out(bulk, sql, part).fetchall()]

    def _carry_out(
        self, bulk: Bulk, sql: str, rows: Sequence[Sequence[Any]]
    ) -> psycopg.RawCursor[tuple[Any, ...]]:
        arrays = [
            array(column, kind) for kind, column in zip(bulk.types, zip(*rows, strict=True), strict=True)
        ]
        return self._execute(sql, arrays, prepare=True)

    def _copy(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        cursor = self._cursor()
        try:
            with cursor.copy(sql) as copy:
                copy.write(block(rows))
        except psycopg.Error as error:
            raise self._fault(error) from error
        return cursor.rowcount

    def portions(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        session = self._open()
        # RawServerCursor takes $1 as RawCursor does.
        with psycopg.RawServerCursor(session, "portions", withhold=not self.in_transaction) as cursor:
            try:
                cursor.execute(_numbered(sql), values, binary=True)
                while rows := cursor.fetchmany(size):
                    yield rows
            except psycopg.Error as error:
                raise self._fault(error) from error

    def begin(self) -> None:
        self._failed = None
        if self._reads_only:
            self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())
            return
        cursor = self._cursor()
        try:
            # The name by which the outcome is asked for, should the connection be lost in COMMIT.
            cursor.execute(f"BEGIN; SELECT pg_current_xact_id()::text{self._need()}")
            cursor.nextset()
            row = cursor.fetchone()
            stays = not self._member or (cursor.nextset() and cursor.fetchone() is not None)
        except psycopg.Error as error:
            raise self._fault(error) from error
        assert row is not None
        self._transaction = row[0]
        if not stays:
            self.rollback()
            raise GivenUp(
                "this server was silent for so long that the others have given it up", hint="start it again"
            )

    def belong_to(self, server: str) -> None:
        self._member = server

    def _need(self) -> str:
        """The statement that holds the row of this server until the transaction ends."""
        if not self._member:
            return ""
        name = self._member.replace("'", "''")
        return f"; SELECT 1 FROM servers WHERE name = '{name}' FOR KEY SHARE"

    def commit(self) -> None:
        if self._execute("COMMIT", ()).statusmessage != "COMMIT":
            # The server's answer to COMMIT after a failed statement whose error somebody has swallowed.
            raise self._failed or RuntimeError("the transaction had failed before its commit")

    def rollback(self) -> None:
        if self.lost or not self.in_transaction:
            return
        with contextlib.suppress(Lost):
            self._execute("ROLLBACK", ())

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def renew(self) -> None:
        if self._session is None:
            self._session = self._connect()
            return
        self._session.close()
        try:
            self._session = self._connect()
        except PilotageError as error:
            # Whatever hinders it now: who asked the running server may come again.
            raise Lost(error.message, hint=error.hint) from None

    def was_committed(self) -> bool | None:
        try:
            row = self.execute("SELECT pg_xact_status(?::xid8)", (self._transaction,)).fetchone()
        except InvalidInput:
            # A transaction that this server, put in place of the other, has not begun yet.
            return False
        return None if row is None else {"committed": True, "aborted": False}.get(row[0])

    def told(self, error: BaseException) -> BaseException:
        return error

    def _open(self) -> Session:
        if self._session is None or self._session.closed:
            raise Lost(
                "the connection to the database is lost", hint="it is made again; try again in a moment"
            )
        return self._session

    def _cursor(self) -> psycopg.RawCursor[tuple[Any, ...]]:
        return psycopg.RawCursor(self._open())

    def _fault(self, error: psycopg.Error) -> Exception:
        """What the store says instead of the driver's error; the error itself where it is a bug."""
        if error.sqlstate == "25P02" and self._failed is not None:
            return self._failed  # all that comes after a failed statement fails for its sake
        found = self._read(error)
        if self._failed is None:
            self._failed = found
        return found

    def _read(self, error: psycopg.Error) -> Exception:
        state, words = error.sqlstate or "", one_line(str(error))
        session = self._session
        stands_by = state == "25006" and not self._reads_only  # a server that has become one that only reads
        if session is None or session.closed or session.broken or state.startswith(_GONE) or stands_by:
            if session is not None:
                session.close()
            return Lost(f"the connection to the database is lost: {words}", hint="try again in a moment")
        if state.startswith(_RACED):
            return Raced(f"the database could not order two transactions: {words}", hint="try again")
        if state.startswith(_BUSY):
            hint = (
                "free some space on the disk of the database" if state == "53100" else "try again in a moment"
            )
            return Overloaded(f"the database cannot do this now: {words}", hint=hint, retry_after=30.0)
        if isinstance(error, psycopg.DataError):
            return InvalidInput(f"the database cannot hold this: {words}")
        return error


class PostgresqlReaders:
    """Sessions for reading, shared by all threads: one is lent for a statement, or until the end of a snapshot."""

    def __init__(self, connect: Callable[[], Session], most: int = READERS) -> None:
        self._connect = connect
        self._idle: list[PostgresqlConnection] = []
        self._free = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._closed = False

    def connection(self) -> Connection:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = _Reader(self)
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


class _Reader:
    """What a thread reads with: a session of the pool for each statement, one for all of a snapshot."""

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, pool: PostgresqlReaders) -> None:
        self._pool = pool
        self._held: PostgresqlConnection | None = None

    @property
    def in_transaction(self) -> bool:
        return self._held is not None and self._held.in_transaction

    def _with(self, what: Callable[[PostgresqlConnection], Result]) -> Result:
        if self._held is not None:
            return what(self._held)
        with self._pool.lent() as connection:
            return what(connection)

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> psycopg.RawCursor[tuple[Any, ...]]:
        return self._with(lambda connection: connection.execute(sql, values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> psycopg.RawCursor[tuple[Any, ...]]:
        return self._with(lambda connection: connection.executemany(sql, rows))

    def save(self, bulk: Bulk, rows: Iterable[Sequence[Any]], /) -> int:
        return self._with(lambda connection: connection.save(bulk, rows))

    def save_returning(self, bulk: Bulk, rows: Iterable[Sequence[Any]], /) -> list[tuple[Any, ...]]:
        return self._with(lambda connection: connection.save_returning(bulk, rows))

    def portions(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        if self._held is not None:
            yield from self._held.portions(sql, values, size)
            return
        with self._pool.lent() as connection:
            yield from connection.portions(sql, values, size)

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


def adapt(session: Session) -> None:
    """Send every integer as bigint: the width of a value must not make another statement of it."""
    session.adapters.register_dumper(int, Int8Dumper)
    session.adapters.register_dumper(int, Int8BinaryDumper)


def one_line(words: str) -> str:
    return "; ".join(" ".join(line.split()) for line in words.splitlines() if line.strip())


@lru_cache(maxsize=2048)
def _numbered(sql: str) -> str:
    """The statement with $1, $2 ... for its `?`; those within quotes stay."""
    places = iter(range(1, 1 << 16))
    return _PLACE.sub(lambda found: f"${next(places)}" if found[0] == "?" else found[0], sql)


def _has_nul(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) and "\0" in value for value in values)


def _without_nul(value: Any) -> Any:
    """PostgreSQL has no NUL in text: what a payload wrote is kept but for that."""
    return value.replace("\0", REPLACEMENT) if isinstance(value, str) else value
