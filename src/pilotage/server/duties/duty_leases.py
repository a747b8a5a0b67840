"""Duties of several servers: each is carried out by the one that has its lock, and all it writes is fenced by that.

What a duty asks of the writer while it runs is carried out only if its lock still has the epoch with which it began:
a server that was held up for an hour in the middle of a cycle changes nothing when it goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from pilotage.core.errors import Superseded
from pilotage.store.cluster import duty_leases
from pilotage.store.engine.connection import Connection
from pilotage.store.writer.replies import Reply
from pilotage.store.writer.transaction import Request, Transaction
from pilotage.store.writer.writer import Writer

log = logging.getLogger(__name__)

KEPT = 15.0
"""Seconds for which a duty is claimed."""

RENEWED = 4.0
"""Seconds between claims."""

_post: ContextVar[tuple[str, int] | None] = ContextVar("post", default=None)
"""The duty that is carried out here, and the epoch of its lock."""


class FencedWriter(Writer):
    """The writer of one of several servers."""

    def submit(self, request: Request, reply: Reply) -> None:
        post = _post.get()
        super().submit(request if post is None else _fenced(request, *post), reply)


def check(connection: Connection) -> None:
    """For what a duty does without the writer: raises `Superseded` unless its lock is still this server's.

    It then is until the transaction ends.
    """
    post = _post.get()
    if post is not None:
        duty_leases.check(connection, *post)


def _fenced(request: Request, name: str, epoch: int) -> Request:
    def fenced(tx: Transaction) -> Any:
        duty_leases.check(tx.connection, name, epoch)
        return request(tx)

    return fenced


class DutyLeases:
    """The duties that this server has."""

    def __init__(self, writer: Writer, server: str, names: Sequence[str]) -> None:
        self._writer = writer
        self._server = server
        self._names = tuple(names)
        self._held: dict[str, int] = {}
        self._until = 0.0
        self.began: dict[str, Callable[[], Awaitable[None]]] = {}
        """What is to be done before a duty is carried out that another server may have had."""

    async def begin(self) -> None:
        await self._writer.acall(lambda tx: duty_leases.create(tx.connection, self._names))
        await self.renew()

    async def renew(self) -> None:
        """Claim all duties. To be called every `RENEWED` seconds."""
        now = time.monotonic()
        held = await self._writer.acall(
            lambda tx: duty_leases.claim(tx.connection, self._names, self._server, KEPT, time.time())
        )
        for name, epoch in held.items():
            if self._held.get(name) != epoch:
                log.info("this server has the duty %s (epoch %d)", name, epoch)
                if (begin := self.began.get(name)) is not None:
                    await begin()
        self._held, self._until = held, now + KEPT

    def holds(self, name: str) -> bool:
        return name in self._held and time.monotonic() < self._until

    async def carry_out(self, name: str, duty: Callable[[], Awaitable[None]]) -> None:
        """One cycle of a duty, if this server has it."""
        if not self.holds(name):
            return
        token = _post.set((name, self._held[name]))
        try:
            await duty()
        except Superseded as error:
            self._held.pop(name, None)
            log.warning("%s", error)
        finally:
            _post.reset(token)
