"""Transactions of several servers overlap, in virtual time.

A writer's group runs in a thread of its own, in turns with the loop, as a blocking program does. At drawn trips to the
database it stands still with its transaction open (`tests.simulation.pauses`). A statement that waits for a lock stands
still too, until the transaction that has the lock has ended. So one thread runs at any time, and the seed decides the
order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from itertools import takewhile
from typing import Any

import psycopg

from pilotage.server.duties.duty_leases import FencedWriter
from pilotage.store.engine.connection import SerializationFailure
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.writer.replies import Reply
from pilotage.store.writer.transaction import BatchableRequest, Request, Transaction
from tests.simulation.overlap_counts import OverlapCounts
from tests.simulation.pauses import Footing, Pause, Pauses
from tests.simulation.processes import ProcessDied, SimulationLoop

LOCK_TIMEOUT = 2.0
"""Seconds for which a statement waits for a lock, in virtual time."""
IDLE_TIMEOUT = 60.0
"""Seconds after which the database ends a session whose transaction stands still."""
SETTINGS = "-c deadlock_timeout=5"
"""So a deadlock is found before the wait for a lock is noticed."""
MOST_ROUNDS = 1000
"""Rounds in which open transactions end, at most."""
_NOTICED = 0.012
_NOTICED_ALONE = 1.0
"""The same for the only open transaction."""
_Group = list[tuple[Request, Reply]]
_ENDS = (b"COMMIT", b"ROLLBACK")


class Interleaving:
    """All transactions that are open, of the servers of one loop."""

    def __init__(self, loop: SimulationLoop, pauses: Pauses, monitor: psycopg.Connection[Any]) -> None:
        """`monitor`: a session that is asked who waits."""
        self.loop, self.pauses = loop, pauses
        self.isolation = ""
        """The level of transactions without messages of pilots; empty: READ COMMITTED, as the product has it."""
        self.counts = OverlapCounts()
        self._monitor = monitor
        self._open: list[OpenGroup] = []
        self._chances: list[tuple[frozenset[bytes], asyncio.Future[object]]] = []

    async def chance(self, tables: frozenset[bytes], seconds: float) -> object:
        """Wait until a transaction rests on one of these tables and stands still, or for some seconds.

        Returns its session. So people and agents meet transactions at the instant at which that matters.
        """
        told: asyncio.Future[object] = self.loop.create_future()
        self._chances.append((tables, told))
        try:
            return await asyncio.wait_for(told, seconds)
        except TimeoutError:
            return None
        finally:
            self._chances.remove((tables, told))

    def tell_chance(self, work: OpenGroup, tables: frozenset[bytes]) -> None:
        """A transaction stands still, and waits for a conflict."""
        for wanted, told in self._chances:
            if wanted & tables and not told.done():
                told.set_result(work.connection)

    def begin(self, work: OpenGroup) -> None:
        self._open.append(work)
        work.start()
        self.settle()

    def ended(self, work: OpenGroup) -> None:
        self._open.remove(work)

    def committed(self, connection: object) -> None:
        """One server has committed."""
        done = next((work for work in self._open if work.connection is connection), None)
        for work in list(self._open):
            if work.connection is not connection:
                self.counts.overlaps += 1
                work.other_committed(done)

    def patience(self) -> float:
        """Real seconds for a statement, until the database is asked whether it waits for a lock."""
        return _NOTICED if len(self._open) > 1 else _NOTICED_ALONE

    def waits_for_lock(self, backend: int) -> bool:
        row = self._monitor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (backend,)).fetchone()
        return bool(row and row[0])

    def cancel(self, backend: int) -> None:
        self._monitor.execute("SELECT pg_cancel_backend(%s)", (backend,))

    def end_session(self, backend: int) -> None:
        self._monitor.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))

    def settle(self) -> None:
        """Let the statements go on whose lock is free by now. Only the thread that has the turn calls this."""
        for work in list(self._open):
            work.look_at_lock()

    def close(self) -> None:
        self._monitor.close()

    def finish(self) -> None:
        """Let all open transactions end at once. Called in the loop."""
        rate, self.pauses.rate = self.pauses.rate, 0.0
        try:
            for _ in range(MOST_ROUNDS):
                for work in list(self._open):
                    work.hurry()
                if not self._open:
                    return
        finally:
            self.pauses.rate = rate
        raise RuntimeError("a transaction waits for a lock of nobody")


class OpenGroup:
    """One group of a writer, which stands still at times."""

    def __init__(
        self,
        interleaving: Interleaving,
        connection: InterleavedConnection,
        run: Callable[[], None],
        ended: Callable[[], None],
        *,
        of_pilots: bool,
    ) -> None:
        """`of_pilots`: it has messages of pilots."""
        self.connection, self.of_pilots = connection, of_pilots
        self.footing = Footing()
        self._interleaving, self._run, self._on_end = interleaving, run, ended
        self._context: Context = copy_context()
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._killed = self._is_over = False
        self._error: BaseException | None = None
        self._in_statement = False
        self._waits = False
        """A statement waits for a lock, or has waited and wants its turn."""
        self._paused = False
        self._pause = Pause(0.0, 0)
        self._commits_left = 0
        self._drawn: Counter[bool] = Counter()
        """Its pauses that wait for a conflict, and the others."""
        self._pauses = 0
        self._waited = 0
        self._paused_at = 0.0

    # In the thread of the group

    def _main(self) -> None:
        self._turn.acquire()
        try:
            if not self._killed:
                self._context.copy().run(self._run)
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._back.release()

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def trip(self, carry_out: Callable[[], Any], statements: Sequence[bytes]) -> Any:
        """Carry out a trip to the database, after a pause if that is drawn."""
        self._need_life()
        pauses = self._interleaving.pauses
        self._stand_still(
            pauses.any(self._drawn[False])
            or pauses.for_conflict(self.connection, statements[-1], self.footing, self._drawn[True])
        )
        with self._mutex:
            self._in_statement = True
        try:
            return carry_out()
        finally:
            with self._mutex:
                self._in_statement = False
                waited = self._waits
            if waited:
                self._hand_over()
            self.footing.note(statements)
            if statements[-1] in _ENDS:
                self._interleaving.settle()
                self._stand_still(pauses.any(self._drawn[False]))

    def _stand_still(self, pause: Pause | None) -> None:
        if pause is None:
            return
        self._drawn[bool(pause.tables)] += 1
        self._pause, self._paused = pause, True
        self._hand_over()

    def _hand_over(self) -> None:
        self._back.release()
        self._turn.acquire()
        self._need_life()

    def _need_life(self) -> None:
        if self._killed:
            raise ProcessDied

    # In the loop, or in the thread that has the turn

    def start(self) -> None:
        self._thread.start()
        self._go_on()

    def _go_on(self) -> None:
        """Give it the turn until it stands still."""
        self._turn.release()
        backend = self.connection.backend
        while not self._back.acquire(timeout=self._interleaving.patience()):
            if self._interleaving.waits_for_lock(backend):
                with self._mutex:
                    if self._in_statement:
                        self._waits = True
                        break
        self._stands_still()

    def _stands_still(self) -> None:
        if self._is_over:
            self._end()
        elif self._waits:
            self._interleaving.counts.waits += 1
            self._waited += 1
            self._later(LOCK_TIMEOUT, self._give_up_lock, self._waited)
        elif self._paused:
            self._begin_pause()
        # What it has released while it ran may let others go on.
        self._interleaving.settle()

    def _end(self) -> None:
        self._thread.join()
        self._interleaving.ended(self)
        # In its own context: another server that stops may have let it end, and its callbacks die with that server.
        self._context.copy().run(self._on_end)
        if self._error is not None and not self._killed:
            raise self._error

    def _later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        loop = self._interleaving.loop
        loop.call_later(seconds, call, *args, context=loop.outside)

    def _begin_pause(self) -> None:
        self._pauses += 1
        self._commits_left = self._pause.commits
        self._interleaving.counts.began(is_for_conflict=bool(self._pause.tables))
        self._paused_at = self._interleaving.loop.time()
        self._interleaving.tell_chance(self, self._pause.tables)
        self._later(self._pause.seconds, self._wake, self._pauses)
        self._later(IDLE_TIMEOUT, self._idle_for_long, self._pauses)

    def other_committed(self, other: OpenGroup | None) -> None:
        """`other`: the group that was committed; None: one that no thread runs."""
        if not self._paused or not self._commits_left:
            return
        if self._pause.tables:
            of_pilots = other is None or other.of_pilots
            if other is None or not self._pause.tables & other.footing.written:
                return
            if self._pause.not_of_pilots and of_pilots:
                return
            self._interleaving.counts.conflicts += 1
        self._commits_left -= 1
        if not self._commits_left:
            self._wake(self._pauses)

    def _wake(self, pause: int) -> None:
        if self._paused and self._pauses == pause:
            # In the context of its process: so it does not wake up while that is frozen.
            self._interleaving.loop.call_soon(self._end_pause, pause, context=self._context.copy())

    def _end_pause(self, pause: int) -> None:
        if self._paused and self._pauses == pause and not self._killed:
            self._paused = False
            if self._pause.tables:
                seconds = self._interleaving.loop.time() - self._paused_at
                self._interleaving.pauses.has_waited(self.connection, seconds)
            self._go_on()

    def _idle_for_long(self, pause: int) -> None:
        if self._paused and self._pauses == pause and self.connection.in_open_transaction:
            self._interleaving.counts.lost_sessions += 1
            self._interleaving.end_session(self.connection.backend)
            self._interleaving.settle()

    def look_at_lock(self) -> None:
        """Plan its turn if its statement waits no longer."""
        if not self._waits or self._paused:
            return
        while not self._back.acquire(timeout=_NOTICED):
            if self._interleaving.waits_for_lock(self.connection.backend):
                return
        self._waits, self._paused, self._pause = False, True, Pause(0.0, 0)
        self._pauses += 1
        self._wake(self._pauses)

    def _give_up_lock(self, wait: int) -> None:
        if self._waits and not self._paused and self._waited == wait:
            self._interleaving.counts.timeouts += 1
            self._interleaving.cancel(self.connection.backend)
            self.look_at_lock()

    def hurry(self) -> None:
        """Go on at once, unless it waits for a lock."""
        if self._paused:
            self._paused = False
            self._go_on()
        else:
            self._interleaving.settle()

    def kill(self) -> None:
        """Its process has died. In its own thread the next trip tells it."""
        self._killed = True
        if self.is_own_thread() or self._is_over:
            return
        if self._waits and not self._paused:
            self._interleaving.end_session(self.connection.backend)
            self._back.acquire()
        self._waits = self._paused = False
        self._turn.release()
        self._back.acquire()
        self._end()


class InterleavedConnection(PostgresqlConnection):
    """The session of a writer. Its trips are those of the group that runs, if one does."""

    group_at_work: OpenGroup | None = None

    interleaving: Interleaving
    isolation = ""
    """The level of its transactions; empty: READ COMMITTED."""

    @classmethod
    def of(cls, connection: PostgresqlConnection, interleaving: Interleaving) -> InterleavedConnection:
        connection.__class__ = cls
        assert isinstance(connection, InterleavedConnection)
        connection.interleaving = interleaving
        connect = connection._connect

        def connect_patiently() -> Any:
            # Statements of a group wait in virtual time.
            session = connect()
            session.execute("SET lock_timeout = 0")
            return session

        connection._connect = connect_patiently
        connection.renew()
        return connection

    def die(self) -> None:
        """Its process has died: the database hears of that at once, and no session is made again."""

        def refuse() -> Any:
            raise ProcessDied

        if self.group_at_work is not None:
            self.group_at_work.kill()
        self.group_at_work = None
        self.rollback()
        self._connect = refuse
        self.close()

    def close(self) -> None:
        """Close the session. Its locks are free when this returns, at the same point of each run."""
        backend = self.backend
        super().close()
        if backend:
            self.interleaving.end_session(backend)
            self.interleaving.settle()

    @property
    def backend(self) -> int:
        return 0 if self.lost else self._open().session.pgconn.backend_pid

    @property
    def in_open_transaction(self) -> bool:
        return not self._begins and self.in_transaction

    def _trip(self, carry_out: Callable[[], Any], *statements: bytes) -> Any:
        group = self.group_at_work
        if group is None or not group.is_own_thread():
            return carry_out()
        return group.trip(carry_out, statements)

    def _execute_all(self, statements: Sequence[Any]) -> Any:
        if self.isolation and statements[0].sql == b"BEGIN":
            begin = f"BEGIN ISOLATION LEVEL {self.isolation}".encode()
            statements = [statements[0]._replace(sql=begin), *statements[1:]]
        sent = [statement.sql for statement in statements]
        return self._trip(lambda: super(InterleavedConnection, self)._execute_all(statements), *sent)

    def executemany(self, sql: str, rows: Any, /) -> Any:
        return self._trip(lambda: super(InterleavedConnection, self).executemany(sql, rows), sql.encode())

    def _copy(self, sql: str, rows: Any) -> int:
        copied: int = self._trip(lambda: super(InterleavedConnection, self)._copy(sql, rows), sql.encode())
        return copied


def _is_of_pilot(queued: tuple[Request, Reply]) -> bool:
    return isinstance(queued[0], BatchableRequest)


class InterleavedWriter(FencedWriter):
    """The writer of one of several servers, whose groups stand still at times."""

    def __init__(self, connection: PostgresqlConnection, interleaving: Interleaving) -> None:
        self._session = InterleavedConnection.of(connection, interleaving)
        self._interleaving, self._is_dead = interleaving, False
        super().__init__(self._session, commits_inline=True)

    def _next_group(self) -> _Group:
        """With a level of isolation of their own, messages of pilots are in other groups than all else."""
        group = super()._next_group()
        if not group or not self._interleaving.isolation:
            return group
        of_pilots = _is_of_pilot(group[0])
        alike = list(takewhile(lambda queued: _is_of_pilot(queued) is of_pilots, group))
        self._requests.extendleft(reversed(group[len(alike) :]))
        self._session.isolation = "" if of_pilots else self._interleaving.isolation
        return alike

    def _handle_failure(
        self, transaction: Transaction, group: _Group, error: BaseException, races: int
    ) -> None:
        if isinstance(error, SerializationFailure):
            self._interleaving.counts.races += 1
        super()._handle_failure(transaction, group, error, races)

    def _run_turn(self) -> None:
        group = self._next_group()
        if not group:
            self._turn_scheduled = False
            return
        of_pilots = any(map(_is_of_pilot, group))
        run = partial(self._run_group, group)
        work = OpenGroup(self._interleaving, self._session, run, self._ended, of_pilots=of_pilots)
        self._session.group_at_work = work
        self._interleaving.begin(work)

    def _ended(self) -> None:
        self._session.group_at_work = None
        self._turn_scheduled = False
        if self._requests and self._loop is not None and not self._is_dead:
            self._schedule_turn(self._loop)

    def call(self, request: Request) -> Any:
        self._interleaving.finish()
        return super().call(request)

    def stop(self) -> None:
        self._interleaving.finish()
        super().stop()

    def die(self) -> None:
        """Its process has died: an open group does nothing any more."""
        self._stopping = self._is_dead = True
        self._session.die()
        self._interleaving.settle()
