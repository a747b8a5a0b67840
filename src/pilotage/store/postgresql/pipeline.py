"""Statements that share a trip to PostgreSQL, by libpq's pipeline.

psycopg's own pipeline sends each of them by itself and does the work of a cursor for each; with libpq's calls all
are one message, and an unread result costs nothing. Repeated statements are prepared on the server.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import abc, generators, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult

Session = psycopg.Connection[tuple[Any, ...]]

PREPARE_THRESHOLD = 3
"""A statement is prepared when it is sent for this time, unless it is said."""
MAX_PREPARED = 500
"""The maximum of prepared statements: each uses memory of the server until the session ends."""
_FETCH_SIZE = 1000

_Key = tuple[bytes, tuple[int, ...]]


class Statement(NamedTuple):
    """One that can be sent; made by `Pipeline.statement` or `Pipeline.text_statement`."""

    sql: bytes
    values: Sequence[Any] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[pq.Format] | None = None
    prepare: bool | None = None
    """Whether it is prepared; None: once it repeats."""


class ResultRows:
    """The rows that a statement gave: `store.engine.connection.Cursor`."""

    __slots__ = ("_end", "_place", "_result", "_transformer", "rowcount")

    def __init__(self, result: PGresult, transformer: abc.Transformer) -> None:
        transformer.set_pgresult(result)
        self._result, self._transformer = result, transformer
        self._place, self._end = 0, result.ntuples
        changed = result.command_tuples if result.status == pq.ExecStatus.COMMAND_OK else self._end
        self.rowcount = -1 if changed is None else changed

    @property
    def description(self) -> Sequence[Any] | None:
        """(name,) of each column."""
        names = [self._result.fname(column) or b"" for column in range(self._result.nfields)]
        return [(name.decode(),) for name in names] or None

    def __iter__(self) -> Iterator[Any]:
        while rows := self._following(_FETCH_SIZE):
            yield from rows

    def fetchone(self) -> Any:
        rows = self._following(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[Any]:
        return self._following(self._end)

    def _following(self, most: int) -> list[Any]:
        begin, self._place = self._place, min(self._end, self._place + most)
        return self._transformer.load_rows(begin, self._place, tuple) if begin < self._place else []


class Pipeline:
    """The way to one session's server."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._names: dict[_Key, bytes] = {}
        self._sent: dict[_Key, int] = {}
        self._prepared = 0

    def statement(self, sql: str, values: Sequence[Any], prepare: bool | None = None) -> Statement:
        """With $1 and so on for `values`. Raises `psycopg.DataError` for values that cannot be sent."""
        if not values:
            return Statement(sql.encode(), prepare=prepare)
        transformer = Transformer(self.session)
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        return Statement(sql.encode(), dumped, transformer.types or (), transformer.formats, prepare)

    def text_statement(self, sql: str, texts: Sequence[str]) -> Statement:
        """A `statement` for texts whose types the statement says itself. They have no NUL."""
        return Statement(sql.encode(), [text.encode() for text in texts], prepare=True)

    def rows(self, result: PGresult) -> ResultRows:
        return ResultRows(result, Transformer(self.session))

    def execute(self, statements: Sequence[Statement]) -> list[PGresult]:
        """Send all statements as one message and wait for their results.

        Outside of a transaction they are one. Raises the error of the first that fails; later statements were not
        executed. Raised with the session closed: the connection is lost.
        """
        pgconn = self.session.pgconn
        preparing: dict[_Key, bytes] = {}
        try:
            pgconn.enter_pipeline_mode()
            commands = [key for statement in statements for key in self._send(statement, preparing)]
            pgconn.pipeline_sync()
            answers = self.session.wait(_fetch_results(pgconn, len(commands)))
            pgconn.exit_pipeline_mode()
        except BaseException:
            # Nobody could tell whose the next answers are.
            self.session.close()
            raise
        for key, answer in zip(commands, answers, strict=True):
            if answer.status == pq.ExecStatus.FATAL_ERROR:
                raise error_from_result(answer, encoding="utf-8")
            if key is not None:
                self._names[key] = preparing[key]
        return [answer for key, answer in zip(commands, answers, strict=True) if key is None]

    def _send(self, statement: Statement, preparing: dict[_Key, bytes]) -> Iterator[_Key | None]:
        """Send a statement; yields the prepared key, or None, for each command sent."""
        sql, values, types, formats, prepare = statement
        key = (sql, types)
        name = self._names.get(key) or preparing.get(key)
        pgconn = self.session.pgconn
        if name is None and self._should_prepare(key, prepare):
            self._prepared += 1
            name = preparing[key] = b"p%d" % self._prepared
            pgconn.send_prepare(name, sql, param_types=types)
            yield key
        if name is None:
            pgconn.send_query_params(
                sql, values, param_types=types, param_formats=formats, result_format=pq.Format.BINARY
            )
        else:
            pgconn.send_query_prepared(name, values, param_formats=formats, result_format=pq.Format.BINARY)
        yield None

    def _should_prepare(self, key: _Key, prepare: bool | None) -> bool:
        if prepare is False or len(self._names) >= MAX_PREPARED:
            return False
        if len(self._sent) > MAX_PREPARED * 2:
            self._sent.clear()
        sent = self._sent[key] = self._sent.get(key, 0) + 1
        return bool(prepare) or sent >= PREPARE_THRESHOLD


def _fetch_results(pgconn: PGconn, commands: int) -> Generator[Any, Any, list[PGresult]]:
    """The results of all commands, when complete; for `Session.wait`."""
    yield from generators.send(pgconn)
    first_results = []
    for _ in range(commands + 1):  # the last one is that of the end
        results = yield from generators.fetch_many(pgconn)
        if not results:
            raise psycopg.OperationalError("the connection has ended")
        first_results.append(results[0])
    return first_results[:-1]
