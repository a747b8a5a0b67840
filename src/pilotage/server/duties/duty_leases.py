"""Leases of duties: of several servers, only the holder of a duty's lease runs the duty.

Every write of a running duty is fenced. The writer runs its requests only while the lease has the epoch with which
the cycle began. A server that was suspended in the middle of a cycle therefore changes nothing when it resumes.
"""

from __future__ import annotations

import logging
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

LEASE = 15.0
"""Seconds for which a duty is leased."""

RENEWAL_PERIOD = 4.0
"""Seconds between two renewals of the leases."""

_running: ContextVar[tuple[str, int] | None] = ContextVar("running_duty", default=None)
"""The duty that this task runs, and the epoch of its lease."""


class FencedWriter(Writer):
    """The writer of one of several servers. It fences the requests of duties."""

    def submit(self, request: Request, reply: Reply) -> None:
        duty = _running.get()
        super().submit(request if duty is None else _fenced(request, *duty), reply)


def check(connection: Connection) -> None:
    """Raise `Superseded` unless this server still has the lease of the running duty.

    For duties that write without the writer. The server then keeps the lease until the transaction ends.
    """
    duty = _running.get()
    if duty is not None:
        duty_leases.check(connection, *duty)


def _fenced(request: Request, name: str, epoch: int) -> Request:
    def fenced(tx: Transaction) -> Any:
        duty_leases.check(tx.connection, name, epoch)
        return request(tx)

    return fenced


class DutyLeases:
    """The duties that this server has a lease of."""

    def __init__(
        self,
        writer: Writer,
        server: str,
        names: Sequence[str],
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """`clock`: seconds since 1970, where the database has no clock. `monotonic`: seconds that never go back."""
        self._writer = writer
        self._server = server
        self._names = tuple(names)
        self._clock, self._monotonic = clock, monotonic
        self._held: dict[str, int] = {}
        self._until = 0.0
        self.on_acquired: dict[str, Callable[[], Awaitable[None]]] = {}
        """Calls when this server acquires a duty's lease, before the duty runs. Another server may have had it."""

    async def begin(self) -> None:
        await self._writer.acall(lambda tx: duty_leases.create(tx.connection, self._names))
        await self.renew()

    async def renew(self) -> None:
        """Claim all duties, and renew the leases of this server. Called every `RENEWAL_PERIOD` seconds."""
        now = self._monotonic()
        held = await self._writer.acall(
            lambda tx: duty_leases.claim(tx.connection, self._names, self._server, LEASE, self._clock())
        )
        for name, epoch in held.items():
            if self._held.get(name) != epoch:
                log.info("acquired the lease of the duty %s (epoch %d)", name, epoch)
                if (callback := self.on_acquired.get(name)) is not None:
                    await callback()
        self._held, self._until = held, now + LEASE

    def holds(self, name: str) -> bool:
        return name in self._held and self._monotonic() < self._until

    async def run(self, name: str, duty: Callable[[], Awaitable[None]]) -> None:
        """Run one cycle of a duty if this server has its lease."""
        if not self.holds(name):
            return
        token = _running.set((name, self._held[name]))
        try:
            await duty()
        except Superseded as error:
            self._held.pop(name, None)
            log.warning("%s", error)
        finally:
            _running.reset(token)
