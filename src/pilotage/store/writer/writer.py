"""The only writer of a server: requests run in groups with one commit each, and are answered after the commit.

A request is a function of a `Transaction`. If a request of a group fails, the group is rolled back, and each request
is run again alone. So only the failing request gets the error. Changes in memory must be undone by a rollback, see
`Transaction`.

COMMIT only waits for a disk. Where the connection allows it (SQLite), it runs in a separate thread while the next group
is processed. The first statement of that group waits for the COMMIT, so the order on the connection is kept. If the
COMMIT fails, the changes in memory of both groups are undone, the later group first.

A connection can be lost (PostgreSQL). Before COMMIT was sent, nothing is stored, and the group is answered `Overloaded`
at once. During COMMIT the outcome is unknown. The writer then reconnects and queries the outcome of the transaction;
until then it answers no request of the group and runs no other. Waiting requests are refused meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from pilotage.core.errors import Overloaded
from pilotage.store.engine.connection import ConnectionLost, SerializationFailure, WriterConnection
from pilotage.store.writer.change_watch import ChangeWatch
from pilotage.store.writer.commit_thread import Commit, CommitThread
from pilotage.store.writer.replies import (
    LoopReply,
    Reply,
    asyncio_reply,
    future_reply,
    send_error,
    send_results,
)
from pilotage.store.writer.stats import TimeSpent, TransactionTimes
from pilotage.store.writer.transaction import BatchableRequest, Request, Transaction, run_requests

Result = TypeVar("Result")

MAX_RETRIES = 3
"""Retries of a transaction after serialization failures."""
RECONNECT_DELAY = 0.5
"""Seconds between attempts to reach a lost database."""


_QueuedRequest = tuple[Request, Reply]
_Group = list[_QueuedRequest]


class _CommitFailed(Exception):
    """The COMMIT of the previous group has failed."""


@dataclass(slots=True)
class _PendingCommit:
    """A group with a COMMIT in progress in the commit thread."""

    group: _Group
    transaction: Transaction
    results: list[Any]
    worked: TimeSpent
    commit: Commit
    changes: int | None
    """The changes of the connection when the group had been processed."""


class Writer:
    """Owns the writing connection: in a thread of its own or, after `move_to_loop`, in that of an event loop.

    SQLite releases the GIL at every statement, which is slow while another thread is busy. So a server with a SQLite
    file runs requests in its event loop. With PostgreSQL the writer mostly waits, and has its own thread.
    """

    def __init__(
        self, connection: WriterConnection, *, waiting: int = 4096, commits_inline: bool = False
    ) -> None:
        """`commits_inline`: without a commit thread. With `move_to_loop` and without `start` it then has no thread."""
        self._connection = connection
        self._commits_inline = commits_inline
        self._requests: deque[_QueuedRequest] = deque()
        self._most = waiting
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._turn_scheduled = False
        self._committer: CommitThread | None = None
        self._pending_commit: _PendingCommit | None = None
        self._begun = TimeSpent(0.0, 0.0)
        self.groups = 0
        self.requests = 0
        self.replays = 0
        self.races = 0
        self.times = TransactionTimes()
        self.changes = ChangeWatch(connection.total_changes)

    def start(self) -> None:
        self._start_commit_thread()
        self._thread.start()

    def stop(self) -> None:
        """Run the waiting requests, then stop. Later requests are refused."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._loop is None and self._thread.ident is not None:
            self._thread.join()
        while self._requests:
            self._run_group(self._next_group())
        self._finish_pending_commit_alone()
        if self._committer is not None:
            self._committer.stop()
            self._committer = None

    @property
    def in_loop(self) -> bool:
        """Whether transactions run in the event loop's thread. No other thread may then compute for long."""
        return self._loop is not None

    def move_to_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run requests in the thread of `loop` from now on. Must be called in that thread."""
        self.stop()
        self._loop, self._loop_thread, self._stopping = loop, threading.get_ident(), False
        self._start_commit_thread()

    def _start_commit_thread(self) -> None:
        if self._connection.commits_in_thread and not self._commits_inline:
            self._committer = CommitThread(self._connection, self._on_commit_done)

    def _on_commit_done(self) -> None:
        """Called in the commit thread."""
        with self._wake:
            if self._loop is None:
                self._wake.notify()
            else:
                self._schedule_turn(self._loop)

    def submit(self, request: Request, reply: Reply) -> None:
        """Queue `request`; `reply` is called in the writer's thread after the commit.

        Raises `Overloaded` when too many requests wait, so that callers retry later.
        """
        with self._wake:
            if self._stopping:
                raise Overloaded("the server is stopping", hint="try again when it is back")
            if len(self._requests) >= self._most:
                raise Overloaded("too many requests wait for the database", hint="try again in a moment")
            self._requests.append((request, reply))
            if self._loop is not None:
                self._schedule_turn(self._loop)
            elif len(self._requests) == 1:
                self._wake.notify()

    def _schedule_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._turn_scheduled:
            return
        self._turn_scheduled = True
        if threading.get_ident() == self._loop_thread:
            loop.call_soon(self._run_turn)
        else:
            loop.call_soon_threadsafe(self._run_turn)

    def _run_turn(self) -> None:
        """Run one group. Between groups the event loop handles other events."""
        group = self._next_group()
        if group:
            self._run_group(group)
        elif self._pending_commit is not None and self._pending_commit.commit.over:
            self._finish_pending_commit_alone()
        with self._wake:
            self._turn_scheduled = False
            # A COMMIT that ended during this turn has not scheduled another one.
            under_way = self._pending_commit
            over = under_way is not None and under_way.commit.over
            if (self._requests or over) and self._loop is not None:
                self._schedule_turn(self._loop)

    def _next_group(self) -> _Group:
        with self._wake:
            group: _Group = []
            requests, room = self._requests, self._connection.group
            while requests and room > 0:
                group.append(requests.popleft())
                request = group[-1][0]
                room -= request.weight if isinstance(request, BatchableRequest) else 1
            return group

    def call(self, request: Callable[[Transaction], Result]) -> Result:
        """Run `request` and wait for its commit."""
        future: Future[Result] = Future()
        self.submit(request, future_reply(future))
        while self._loop is not None and threading.get_ident() == self._loop_thread and not future.done():
            group = self._next_group()
            if group:
                self._run_group(group)
            else:
                self._finish_pending_commit_alone()
        return future.result()

    async def acall(self, request: Callable[[Transaction], Result]) -> Result:
        """Run `request` and wait for its commit, from the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self.submit(request, LoopReply(loop, asyncio_reply(future)))
        return await future

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: (
                        self._requests
                        or self._stopping
                        or (self._pending_commit and self._pending_commit.commit.over)
                    )
                )
                stop = self._stopping and not self._requests
            if stop:
                return
            group = self._next_group()
            if group:
                self._run_group(group)
            else:
                self._finish_pending_commit_alone()

    def _run_group(self, group: _Group, races: int = 0) -> None:
        if not races:
            self.groups += 1
            self.requests += len(group)
        transaction = Transaction(self._connection)
        self._begun = TimeSpent.now()
        try:
            results = self._run_requests(transaction, group)
        except _CommitFailed:
            self._connection.rollback()
            self._undo_memory(transaction)
            self._handle_commit_failure()
            self._run_group(group)
            return
        except ConnectionLost as error:
            send_error(_replies(group), error)
            self._undo_memory(transaction)
            return
        except BaseException as error:
            self._handle_failure(transaction, group, error, races)
            return
        worked = self._begun.until_now()
        if self._committer is not None and len(group) > 1:
            changes = self._connection.total_changes
            commit = self._committer.begin()
            self._pending_commit = _PendingCommit(group, transaction, results, worked, commit, changes)
        else:
            self._commit(group, transaction, results, worked, races)

    def _run_requests(self, transaction: Transaction, group: _Group) -> list[Any]:
        try:
            if self._pending_commit is None:
                self._begin()
            else:
                self._connection.first = self._begin_after_commit
            results = run_requests(transaction, [request for request, _ in group])
            transaction.finish()
            return results
        finally:
            # Without a statement in this group, the previous COMMIT is still pending.
            self._connection.first = None
            self._finish_pending_commit()

    def _begin_after_commit(self) -> None:
        """Called before the first statement of a group while the previous COMMIT is pending."""
        self._finish_pending_commit()
        self._connection.first = None
        self._begin()

    def _commit(
        self, group: _Group, transaction: Transaction, results: list[Any], worked: TimeSpent, races: int
    ) -> None:
        begun = TimeSpent.now()
        try:
            self._connection.commit()
        except ConnectionLost as error:
            committed = self._commit_outcome()
            if not committed:
                send_error(_replies(group), error)
                if committed is False:
                    self._undo_memory(transaction)
                return
        except BaseException as error:
            self._handle_failure(transaction, group, error, races)
            return
        self.times.took(worked, begun.until_now().clock)
        self.changes.note(self._connection.total_changes)
        send_results(_replies(group), results, self._loop)

    def _finish_pending_commit(self) -> None:
        """Wait for the pending COMMIT, and send the results of its group."""
        before = self._pending_commit
        if before is None:
            return
        before.commit.wait()
        if before.commit.error is not None:
            raise _CommitFailed
        self._pending_commit = None
        self.times.took(before.worked, before.commit.seconds)
        self.changes.note(before.changes)
        send_results(_replies(before.group), before.results, self._loop)

    def _finish_pending_commit_alone(self) -> None:
        """Finish the pending commit when no later group has begun."""
        try:
            self._finish_pending_commit()
        except _CommitFailed:
            self._handle_commit_failure()

    def _handle_commit_failure(self) -> None:
        """Handle a failed COMMIT, after changes of later groups are undone."""
        before, self._pending_commit = self._pending_commit, None
        assert before is not None
        assert before.commit.error is not None
        self._handle_failure(before.transaction, before.group, before.commit.error, 0)

    def _begin(self) -> None:
        # Time spent during the COMMIT of the previous group has delayed no request.
        self._begun = TimeSpent.now()
        try:
            self._connection.begin()
        except ConnectionLost:
            # The connection was lost between transactions: reconnect silently.
            self._connection.renew()
            self._connection.begin()

    def _handle_failure(
        self, transaction: Transaction, group: _Group, error: BaseException, races: int
    ) -> None:
        """Roll a group back; then retry it, or run each of its requests alone."""
        self._connection.rollback()
        try:
            self._undo_memory(transaction)
        except Exception as worse:
            error = worse
        if isinstance(error, SerializationFailure) and races < MAX_RETRIES:
            self.races += 1
            self._run_group(group, races + 1)
        elif len(group) == 1:
            send_error(_replies(group), self._connection.caller_error(error))
        else:
            self.replays += 1
            for alone in group:
                self._run_group([alone])

    def _undo_memory(self, transaction: Transaction) -> None:
        """Undo uncommitted changes in memory. This may read rows, so a lost connection is reopened."""
        while True:
            try:
                transaction.undo_changes()
            except ConnectionLost:
                if self._reconnect():
                    continue
            return

    def _commit_outcome(self) -> bool | None:
        """Whether a COMMIT without an answer succeeded; None: the writer stops before it is known."""
        while self._reconnect():
            try:
                committed = self._connection.was_committed()
            except ConnectionLost:
                continue
            if committed is not None:
                return committed
            if self._pause():
                break
        return None

    def _reconnect(self) -> bool:
        """Reconnect, retrying until it succeeds; False: the writer stops first."""
        while True:
            try:
                self._connection.renew()
            except ConnectionLost as error:
                with self._wake:
                    waiting = list(self._requests)
                    self._requests.clear()
                send_error(_replies(waiting), error)
                if self._pause():
                    return False
            else:
                return True

    def _pause(self) -> bool:
        """Wait for `RECONNECT_DELAY`; True: the writer stops."""
        with self._wake:
            return self._wake.wait_for(lambda: self._stopping, RECONNECT_DELAY)


def _replies(group: _Group) -> list[Reply]:
    return [reply for _, reply in group]
