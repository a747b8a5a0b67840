"""Runs what one server does with something of the other one in the middle of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pilotage.core.errors import Overloaded, PilotageError
from pilotage.store.engine.connection import SerializationFailure
from tests.deadlines import PATIENCE
from tests.interleavings.footprints import Footprint, of_statements
from tests.interleavings.server import PairServer, Work
from tests.interleavings.world import World

LOOK = 0.002
"""Seconds between two looks whether the second one waits for a lock."""


class Broken(AssertionError):
    """A server has done something that no order of the two explains."""


@dataclass
class Outcome:
    """How the transactions have ended."""

    answers: list[Any]
    waited: bool
    """One waited for a lock of another one."""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word_of(answer) for answer in self.answers)


def word_of(answer: Any) -> str:
    """What the caller was told, in short."""
    if not isinstance(answer, BaseException):
        return "ok"
    if isinstance(answer, SerializationFailure | Overloaded):
        return "try again"
    if isinstance(answer, PilotageError):
        return type(answer).__name__
    raise Broken(f"{type(answer).__name__}: {answer}") from answer


class Interleaver:
    """A server stands still before one of its trips until the next one waits for a lock, or has an answer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._watch = psycopg.connect(world.database.url, autocommit=True)

    def close(self) -> None:
        self._watch.close()

    def run(self, *works: Work, trips: Sequence[int]) -> Outcome:
        """Run each one of two or three just before a trip of the one before it, counted from 1; or after it.

        Each has a server of its own.
        """
        servers = [*self._world.servers, self._world.third]
        started = list[Future[Any]]()
        waits: set[int] = set()

        def start(place: int) -> None:
            if place < len(trips) and place == len(started):
                hook(servers[place], *hooks(place))
            started.append(servers[place].begin(works[place]))

        def hooks(place: int) -> tuple[Callable[[], None], Callable[[], None]]:
            numbers = count(1)

            def before() -> None:
                if next(numbers) == trips[place] and len(started) == place + 1:
                    start(place + 1)
                    if self._wait(servers[place + 1], started[place + 1]):
                        waits.add(place + 1)

            def after() -> None:
                is_under_way = len(started) > place + 1 and not started[place + 1].done()
                if is_under_way and _is_idle(servers[place]):
                    self._wait(servers[place + 1], started[place + 1])

            return before, after

        answers = []
        for place in range(len(works)):
            if len(started) == place:
                start(place)
            answers.append(answer_of(started[place]))
        for server in servers:
            unhook(server)
        return Outcome(answers, bool(waits))

    def _wait(self, server: PairServer, work: Future[Any]) -> bool:
        """Until it has an answer, or waits for a lock. Returns whether it waits."""
        sql, until = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", monotonic() + PATIENCE
        session = server.connection._open().session.info.backend_pid
        while monotonic() < until:
            try:
                work.exception(LOOK)
            except NotYet:
                if self._watch.execute(sql, (session,)).fetchone():
                    return True
            else:
                return False
        raise Broken("a transaction neither ends nor waits for a lock")


def _is_idle(server: PairServer) -> bool:
    pgconn = server.connection._open().session.pgconn
    return pgconn.transaction_status == TransactionStatus.IDLE


def answer_of(work: Future[Any]) -> Any:
    """The result, or the error."""
    error = work.exception(PATIENCE)
    return work.result() if error is None else error


def hook(server: PairServer, before: Callable[[], None], after: Callable[[], None]) -> None:
    connection = server.connection
    execute_all = type(connection)._execute_all

    def hooked(statements: Sequence[Any]) -> Any:
        before()
        try:
            return execute_all(connection, statements)
        finally:
            after()

    setattr(connection, "_execute_all", hooked)  # noqa: B010


def unhook(server: PairServer) -> None:
    vars(server.connection).pop("_execute_all", None)


def footprints_of(server: PairServer, work: Work, tables: frozenset[str]) -> tuple[Any, list[Footprint]]:
    """What the caller is told, and the footprint of each trip to the database."""
    connection, found = server.connection, list[Footprint]()
    execute_all = type(connection)._execute_all

    def noted(statements: Sequence[Any]) -> Any:
        found.append(of_statements(statements, tables))
        return execute_all(connection, statements)

    setattr(connection, "_execute_all", noted)  # noqa: B010
    answer = answer_of(server.begin(work))
    unhook(server)
    return answer, found
