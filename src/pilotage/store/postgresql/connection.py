"""A PostgreSQL server: one session that writes, a few that read, through psycopg 3 with plain SQL and tuples.

Statements are sent with the server's own `$1` and are prepared there once they repeat (`store.postgresql.pipeline`).
Statements without a result are deferred to the next round trip. Integers are always sent as bigint, so that each
statement has one plan. Errors that are no fault of a request come out as `ConnectionLost`, `SerializationFailure` and
`Overloaded`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from pilotage.core.errors import DatabaseDamaged, DiskFull, InvalidInput, Overloaded, PilotageError
from pilotage.store.engine.bulk_statements import BulkStatement
from pilotage.store.engine.connection import (
    ConnectionLost,
    SerializationFailure,
    ServerEvicted,
    array_literal,
)
from pilotage.store.postgresql.copy_format import REPLACEMENT, encode_rows
from pilotage.store.postgresql.pipeline import Pipeline, ResultRows, Session, Statement

COPY_THRESHOLD = 256
"""Plain inserts use COPY from this number of rows on."""
MAX_DEFERRED = 64
"""The maximum of deferred statements."""
_PLACEHOLDER = re.compile(r"'[^']*'|\?")
_CONNECTION_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""SQLSTATEs, or how they begin, after which a session is of no use."""
_SERIALIZATION = ("40001", "40P01", "23505")
"""23505: another transaction has inserted the same row; a retry finds it."""
_KINDS: tuple[tuple[tuple[str, ...], Callable[[str], PilotageError]], ...] = (
    (
        _SERIALIZATION,
        lambda words: SerializationFailure(
            f"the database could not order two transactions: {words}", hint="try again"
        ),
    ),
    (
        ("53100",),
        lambda words: DiskFull(
            f"the disk of the database is full: {words}", hint="free some space there", retry_after=30.0
        ),
    ),
    (
        ("55P03",),
        lambda words: Overloaded(
            f"another server is busy with the same rows: {words}",
            hint="try again in a moment",
            retry_after=5.0,
        ),
    ),
    (
        ("53", "57014"),
        lambda words: Overloaded(
            f"the database cannot do this now: {words}", hint="try again in a moment", retry_after=30.0
        ),
    ),
    (
        ("XX001", "XX002"),  # a damaged table or index
        lambda words: DatabaseDamaged(
            f"the database is damaged: {words}",
            hint="stop the servers, and restore a backup into an empty database: `pilotage db restore FILE`",
        ),
    ),
)
"""Errors that are no bugs, by the beginnings of their codes: the first one counts."""


class PostgresqlConnection:
    """One session; `store.engine.connection.WriterConnection`.

    `connect` makes the session, at first and after each loss. Not open until `renew` is called.
    """

    dialect: Literal["postgresql"] = "postgresql"
    group = 128
    commits_in_thread = False
    total_changes = None
    first: Callable[[], None] | None = None
    clock: Callable[[], float] | None = None

    def __init__(self, connect: Callable[[], Session], *, reads_only: bool = False) -> None:
        self._connect = connect
        self._reads_only = reads_only
        self._pipeline: Pipeline | None = None
        self._waiting: list[Statement] = []
        self._begins = False
        """A transaction was begun that the server does not know of yet."""
        self._transaction = ""
        self._failed: Exception | None = None
        self._member = ""
        self.round_trips = 0
        """How often something was sent and waited for."""

    @property
    def in_transaction(self) -> bool:
        if self._begins or self.lost:
            return self._begins
        return self._open().session.pgconn.transaction_status in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
            pq.TransactionStatus.ACTIVE,
        )

    @property
    def lost(self) -> bool:
        return self._pipeline is None or self._pipeline.session.closed

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> ResultRows:
        return self._execute(self._statement(_number_placeholders(sql), values))

    def execute_later(self, sql: str, values: Sequence[Any] = (), /) -> None:
        self._defer(self._statement(_number_placeholders(sql), values))

    def _defer(self, statement: Statement) -> None:
        """Defer a statement to the next round trip; send it at once outside of a transaction."""
        self._waiting.append(statement)
        if len(self._waiting) >= MAX_DEFERRED or not self.in_transaction:
            self._send()

    def _statement(self, sql: str, values: Sequence[Any], prepare: bool | None = None) -> Statement:
        pipeline = self._open()
        try:
            return pipeline.statement(sql, values, prepare)
        except psycopg.DataError as error:
            if not _has_nul(values):
                raise self._translate_error(error) from error
            return self._statement(sql, [_replace_nul(value) for value in values], prepare)

    def _execute(self, statement: Statement) -> ResultRows:
        result = self._send(statement)[-1]
        return self._open().rows(result)

    def _send(self, *statements: Statement) -> list[PGresult]:
        """Execute the deferred statements, then these, in one round trip."""
        waiting, self._waiting = self._waiting, []
        if self._begins:
            self._begins = False
            return self._send_first([*waiting, *statements])
        return self._execute_all([*waiting, *statements])

    def _execute_all(self, statements: Sequence[Statement]) -> list[PGresult]:
        self.round_trips += 1
        try:
            return self._open().execute(statements)
        except psycopg.Error as error:
            raise self._translate_error(error) from error

    def _send_first(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Carry these out in a transaction that begins with them. They are not the last ones of it."""
        sent = [
            self._statement("BEGIN", (), prepare=False),
            self._statement(*self._transaction_identity()),
            *statements,
        ]
        try:
            results = self._execute_all(sent)
        except ConnectionLost:
            # It was lost while nothing was under way, or nothing is kept of that: nobody needs to know.
            self.renew()
            self._failed = None
            results = self._execute_all(sent)
        self._transaction, stays = self._open().rows(results[1]).fetchone()
        if not stays:
            self.rollback()
            raise ServerEvicted(
                "this server was silent for so long that the others have given it up", hint="start it again"
            )
        return results[2:]

    def _cursor(self) -> psycopg.RawCursor[tuple[Any, ...]]:
        """A cursor for statements outside of the pipeline. Deferred statements are executed first."""
        session = self._open().session
        if self._waiting or self._begins:
            self._send()
        self.round_trips += 1
        return psycopg.RawCursor(session)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> psycopg.RawCursor[tuple[Any, ...]]:
        cursor = self._cursor()
        try:
            cursor.executemany(_number_placeholders(sql), rows)
        except psycopg.Error as error:
            raise self._translate_error(error) from error
        return cursor

    def execute_bulk(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> int:
        given = rows if isinstance(rows, Sequence) else list(rows)
        if not given:
            return 0
        if bulk.copy and len(given) >= COPY_THRESHOLD:
            return self._copy(bulk.copy, given)
        return sum(self._execute(part).rowcount for part in self._parts(bulk, bulk.postgresql, given))

    def execute_bulk_later(self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /) -> None:
        given = rows if isinstance(rows, Sequence) else list(rows)
        if bulk.copy and len(given) >= COPY_THRESHOLD:
            self._copy(bulk.copy, given)
        elif given:
            for statement in self._parts(bulk, bulk.postgresql, given):
                self._defer(statement)

    def execute_bulk_returning(
        self, bulk: BulkStatement, rows: Iterable[Sequence[Any]], /
    ) -> list[tuple[Any, ...]]:
        given = rows if isinstance(rows, Sequence) else list(rows)
        if not given:
            return []
        sql = bulk.postgresql + bulk.returning
        return [row for part in self._parts(bulk, sql, given) for row in self._execute(part).fetchall()]

    def _parts(self, bulk: BulkStatement, sql: str, given: Sequence[Sequence[Any]]) -> Iterator[Statement]:
        pipeline = self._open()
        for rows in bulk.passes(given):
            columns = zip(bulk.types, zip(*rows, strict=True), strict=True)
            yield pipeline.text_statement(
                sql, [_replace_nul(array_literal(column, kind)) for kind, column in columns]
            )

    def _copy(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        cursor = self._cursor()
        try:
            with cursor.copy(sql) as copy:
                copy.write(encode_rows(rows))
        except psycopg.Error as error:
            raise self._translate_error(error) from error
        return cursor.rowcount

    def fetch_batches(self, sql: str, values: Sequence[Any], size: int, /) -> Iterator[list[Any]]:
        session = self._cursor().connection
        # RawServerCursor takes $1 as RawCursor does.
        with psycopg.RawServerCursor(session, "fetch_batches", withhold=not self.in_transaction) as cursor:
            try:
                cursor.execute(_number_placeholders(sql), values, binary=True)
                while rows := cursor.fetchmany(size):
                    yield rows
            except psycopg.Error as error:
                raise self._translate_error(error) from error

    def begin(self) -> None:
        self._failed = None
        self._waiting.clear()
        if self._reads_only:
            self._send(self._statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", (), prepare=False))
            return
        self._open()
        self._begins, self._transaction = True, ""

    def bind_to_server(self, server: str) -> None:
        self._member = server

    def _transaction_identity(self) -> tuple[str, tuple[str, ...]]:
        """Asks for the transaction's name, by which its outcome is asked for if the connection is lost in COMMIT.

        And holds the row of this server until the transaction ends, if it is there.
        """
        if not self._member:
            return "SELECT pg_current_xact_id()::text, 1", ()
        held = "(SELECT 1 FROM servers WHERE name = $1 FOR KEY SHARE)"
        return f"SELECT pg_current_xact_id()::text, {held}", (self._member,)

    def commit(self) -> None:
        if self._begins:
            # Not in one trip with COMMIT: without the transaction's name nobody could ask how it ended.
            self._send()
        # Not prepared, so that it is recognisable in pg_stat_activity.
        if self._send(self._statement("COMMIT", (), prepare=False))[-1].command_status != b"COMMIT":
            # The server's answer to COMMIT after a failed statement whose error somebody has swallowed.
            raise self._failed or RuntimeError("the transaction had failed before its commit")

    def rollback(self) -> None:
        self._waiting.clear()
        self._begins = False
        if self.lost or not self.in_transaction:
            return
        with contextlib.suppress(ConnectionLost):
            self._send(self._statement("ROLLBACK", (), prepare=False))

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.session.close()

    def renew(self) -> None:
        self._waiting.clear()
        self._begins = False
        if self._pipeline is None:
            self._pipeline = Pipeline(self._connect())
            return
        self._pipeline.session.close()
        try:
            self._pipeline = Pipeline(self._connect())
        except PilotageError as error:
            # Any cause: callers of the running server may retry.
            raise ConnectionLost(error.message, hint=error.hint) from None

    def was_committed(self) -> bool | None:
        if not self._transaction:
            return False  # it was lost before the server was told of COMMIT
        try:
            row = self.execute("SELECT pg_xact_status(?::xid8)", (self._transaction,)).fetchone()
        except InvalidInput:
            # A transaction that this server, put in place of the other, has not begun yet.
            return False
        return None if row is None else {"committed": True, "aborted": False}.get(row[0])

    def caller_error(self, error: BaseException) -> BaseException:
        return error

    def _open(self) -> Pipeline:
        if self._pipeline is None or self._pipeline.session.closed:
            raise ConnectionLost(
                "the connection to the database is lost", hint="it is made again; try again in a moment"
            )
        return self._pipeline

    def _translate_error(self, error: psycopg.Error) -> Exception:
        """The store's error for a driver's error; the same error if it is a bug."""
        if error.sqlstate == "25P02" and self._failed is not None:
            return self._failed  # all that comes after a failed statement fails for its sake
        translated = self._error_for(error)
        if self._failed is None:
            self._failed = translated
        return translated

    def _error_for(self, error: psycopg.Error) -> Exception:
        state, words = error.sqlstate or "", one_line(str(error))
        session = None if self._pipeline is None else self._pipeline.session
        stands_by = state == "25006" and not self._reads_only  # a server that has become one that only reads
        if (
            session is None
            or session.closed
            or session.broken
            or state.startswith(_CONNECTION_LOST)
            or stands_by
        ):
            if session is not None:
                session.close()
            return ConnectionLost(
                f"the connection to the database is lost: {words}", hint="try again in a moment"
            )
        for states, kind in _KINDS:
            if state.startswith(states):
                return kind(words)
        if isinstance(error, psycopg.DataError):
            return InvalidInput(f"the database cannot hold this: {words}")
        return error


def send_integers_as_bigint(session: Session) -> None:
    """Send every integer as bigint: the width of a value must not make another statement of it."""
    session.adapters.register_dumper(int, Int8Dumper)
    session.adapters.register_dumper(int, Int8BinaryDumper)


def one_line(words: str) -> str:
    return "; ".join(" ".join(line.split()) for line in words.splitlines() if line.strip())


@lru_cache(maxsize=2048)
def _number_placeholders(sql: str) -> str:
    """The statement with $1, $2 ... for its `?`; question marks within quotes stay."""
    places = iter(range(1, 1 << 16))
    return _PLACEHOLDER.sub(lambda match: f"${next(places)}" if match[0] == "?" else match[0], sql)


def _has_nul(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) and "\0" in value for value in values)


def _replace_nul(value: Any) -> Any:
    """PostgreSQL has no NUL in text: NULs in a payload's texts are replaced."""
    return value.replace("\0", REPLACEMENT) if isinstance(value, str) else value
