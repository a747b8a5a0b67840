"""The duty that records waiting jobs and shares over time."""

from __future__ import annotations

import asyncio

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.services.intervals.recording import count_waiting, record, share_values
from pilotage.services.shares.table import entitlements, share_table
from pilotage.store.tables.intervals import ShareValues, WaitingCount

RECORD_PERIOD = 60.0
"""Seconds between two records."""


class IntervalDuty(Duty):
    """Adds the present waiting jobs and shares to their intervals, for the time since the last record.

    The server that finds the reasons has them in memory. So one lease is for both.
    """

    name, lease = "intervals", "reasons"
    every = RECORD_PERIOD

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._looked_at = context.monotonic()

    async def work(self) -> None:
        context, pool = self._context, self._context.pool
        if pool.queues.recorded_reasons is None or pool.queues.loading is not None:
            return
        table = await context.writer.acall(lambda _: entitlements(pool))
        as_of = context.duties.book.as_of
        shares = await asyncio.to_thread(lambda: share_values(share_table(table, as_of)))
        waiting = await asyncio.to_thread(self._count)
        await self._record(waiting, shares)

    def _count(self) -> list[WaitingCount]:
        queues = self._context.pool.queues
        return count_waiting(list(queues.index.entries.values()), dict(queues.recorded_reasons or {}))

    async def _record(self, waiting: list[WaitingCount], shares: list[ShareValues]) -> None:
        context = self._context
        now, looked_at = context.clock(), context.monotonic()
        elapsed = looked_at - self._looked_at
        await context.writer.acall(lambda tx: record(tx, now, elapsed, waiting, shares))
        self._looked_at = looked_at
