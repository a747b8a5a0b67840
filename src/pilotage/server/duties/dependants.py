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

AT_ONCE = 500
"""Rows that a step reads at once."""


class DependantsDuty(Duty):
    """Decides conditions on jobs that have ended, and moves the jobs behind them.

    Each of several servers has this duty. The server that ends a job wakes its own, and the others help.
    """

    name = "dependants"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._loop: asyncio.AbstractEventLoop | None = None

    def _due(self) -> None:
        """Called in the writer's thread, in a transaction that ends before the duty's next request."""
        wake = self._context.wake.dependants
        if self._context.writer.in_loop:
            wake.set()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(wake.set)

    def period(self) -> float:
        return PERIOD

    async def work(self) -> None:
        context, progress = self._context, 1
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await context.writer.acall(lambda tx: tx.set(context.pool.jobs, "dependants_due", self._due))
        while progress and not context.stop.is_set():
            progress = await self._mark() + await self._decide() + await self._move()
        self.idle_until = inf

    async def _mark(self) -> int:
        pool = self._context.pool
        return await self._rows.step(
            "mark jobs",
            lambda tx: chains.unmarked(tx.connection, AT_ONCE),
            lambda tx, submissions: dependants.mark_parents(pool, tx, submissions),
        )

    async def _decide(self) -> int:
        return await self._rows.step(
            "decide conditions",
            lambda tx: chains.next_changes(tx.connection, AT_ONCE),
            dependants.decide_changes,
        )

    async def _move(self) -> int:
        context = self._context
        moved = await self._rows.step(
            "move dependent jobs",
            lambda tx: chains.unsettled(tx.connection, AT_ONCE),
            lambda tx, gates: dependants.move_dependants(context.pool, tx, gates, context.clock()),
        )
        if moved:
            context.wake.local_ces.set()
        return moved
