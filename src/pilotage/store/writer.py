"""The one writer: requests of many are carried out in groups, one commit each; answers go out after the commit.

A request is a function of a `Transaction`. If one of a group fails, the group is rolled back and every request of
it is carried out again by itself, so that only the one that is wrong gets the error. What a request changes in
memory it must be able to take back: `Transaction.on_rollback`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pilotage.core.errors import Overloaded, PilotageError

Result = TypeVar("Result")

GROUP = 128
"""At most so many requests share a commit."""


class Transaction:
    """One open transaction. Its connection is the writer's."""

    __slots__ = ("_undo", "connection")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._undo: list[Callable[[], object]] = []

    def on_rollback(self, undo: Callable[[], object]) -> None:
        """Have `undo` called, newest first, if the transaction is not committed; the rows are then as before."""
        self._undo.append(undo)

    def rolled_back(self) -> None:
        while self._undo:
            self._undo.pop()()


Request = Callable[[Transaction], Any]
Reply = Callable[[Any, BaseException | None], None]


class Writer:
    """Owns the writing connection in a thread of its own."""

    def __init__(self, connection: sqlite3.Connection, *, waiting: int = 4096) -> None:
        self._connection = connection
        self._requests: deque[tuple[Request, Reply]] = deque()
        self._most = waiting
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.groups = 0
        self.requests = 0
        self.replays = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Carry out what waits, then end. Later requests are refused."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, request: Request, reply: Reply) -> None:
        """Have `request` carried out; `reply` is called in the writer's thread after the commit.

        Raises `Overloaded` when too many wait, so that the caller comes again instead of piling up.
        """
        with self._wake:
            if self._stopping:
                raise Overloaded("the server is stopping", hint="try again when it is back")
            if len(self._requests) >= self._most:
                raise Overloaded("too many requests wait for the database", hint="try again in a moment")
            self._requests.append((request, reply))
            if len(self._requests) == 1:
                self._wake.notify()

    def call(self, request: Callable[[Transaction], Result]) -> Result:
        """Carry out `request` and wait for its commit."""
        future: Future[Result] = Future()
        self.submit(request, _into(future))
        return future.result()

    async def acall(self, request: Callable[[Transaction], Result]) -> Result:
        """As `call`, for the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self.submit(request, _LoopReply(loop, future))
        return await future

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._requests and not self._stopping:
                    self._wake.wait()
                if not self._requests:
                    return
                count = min(GROUP, len(self._requests))
                group = [self._requests.popleft() for _ in range(count)]
            self._carry_out(group)

    def _carry_out(self, group: list[tuple[Request, Reply]]) -> None:
        self.groups += 1
        self.requests += len(group)
        try:
            results = self._commit([request for request, _ in group])
        except BaseException as error:
            if len(group) == 1:
                group[0][1](None, _told(error))
                return
            self.replays += 1
            for alone in group:
                self._carry_out([alone])
            return
        deliveries: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for (_, reply), result in zip(group, results, strict=True):
            if isinstance(reply, _LoopReply):
                deliveries.setdefault(reply.loop, []).append((reply.future, result))
            else:
                reply(result, None)
        for loop, answers in deliveries.items():
            _wake_loop(loop, _deliver, answers)

    def _commit(self, requests: list[Request]) -> list[Any]:
        transaction = Transaction(self._connection)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [request(transaction) for request in requests]
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            transaction.rolled_back()
            raise
        return results


class _LoopReply:
    """A reply for an event loop: those of one group wake their loop once."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self.loop = loop
        self.future = future

    def __call__(self, result: Any, error: BaseException | None) -> None:
        _wake_loop(self.loop, _settle, self.future, result, error)


def _wake_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, *arguments)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _deliver(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in answers:
        _settle(future, result, None)


def _into(future: Future[Any]) -> Reply:
    def reply(result: Any, error: BaseException | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return reply


def _told(error: BaseException) -> BaseException:
    """A full disk is no bug: nothing was changed, and the caller may come again."""
    if isinstance(error, sqlite3.OperationalError) and not isinstance(error, PilotageError):
        text = str(error)
        if "full" in text or "disk I/O" in text:
            return Overloaded(
                f"the database cannot be written: {text}",
                hint="free some space on the disk of the server's home; nothing was lost",
                retry_after=30.0,
            )
    return error
