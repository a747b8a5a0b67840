"""The duty of jobs that depend on others: it releases them when their parents end, in slices."""

from __future__ import annotations

import asyncio
from math import inf

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.services.jobs import dependants
from pilotage.store.tables import chains

PERIOD = 1.0
"""Seconds between two cycles that nothing wakes. One without work costs one small query."""

STEP = "release dependent jobs"


class DependantsDuty(Duty):
    """Decides conditions on jobs that have ended, and moves the jobs behind them.

    Each of several servers has this duty. The server that ends a job wakes its own, and the others help.
    """

    name = "dependants"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        loop, wake = asyncio.get_running_loop(), context.wake.dependants

        def due() -> None:
            # The transaction is committed, or undone, before a request of the duty is processed.
            loop.call_soon_threadsafe(wake.set)

        context.pool.jobs.dependants_due = due

    def period(self) -> float:
        return PERIOD

    async def work(self) -> None:
        context = self._context
        while await context.writer.acall(lambda tx: chains.has_work(tx.connection)):
            await self._rows.until_done(
                STEP,
                lambda tx, size: dependants.advance(context.pool, tx, size, context.clock()),
                context.stop,
            )
            context.wake.local_ces.set()
            if context.stop.is_set():
                return
        self.idle_until = inf
