"""The lease duty of a server that is never suspended. Its clock makes no step."""

from __future__ import annotations

from math import inf

from pilotage.server.duties.leases import LeaseDuty
from pilotage.services.pilots import leases


class UninterruptedLeaseDuty(LeaseDuty):
    """Takes no time between two of its cycles for an outage, so that they may be rare."""

    async def _send_heartbeat(self, now: float) -> None:
        pool, begins = self._context.pool, self._reachable_until is None
        await self._context.writer.acall(
            lambda tx: leases.heartbeat(pool, tx, now, begins=begins, longest_gap=inf)
        )
        self._reachable_until = now
