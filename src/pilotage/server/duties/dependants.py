"""The duty of jobs that depend on others: it releases them when their parents end, in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.services.jobs import dependants, parallel
from pilotage.store.tables import chains, parallel_limits
from pilotage.store.tables.chains import GateKey
from pilotage.store.writer.transaction import Transaction

AT_ONCE = 500
"""Rows that a step reads at once."""


class DependantsDuty(Duty):
    """Decides conditions on jobs that have ended, and moves the jobs behind them.

    Each of several servers has this duty. The server that ends a job wakes its own, and the others help.
    """

    name = "dependants"
    every = 10.0
    """For rows that failed, and for the work of a server that was killed."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_due = False
        """Whether the writer may have work that readers do not see yet."""
        context.pool.jobs.dependants_due.listener = self._due

    def _due(self) -> None:
        """Called in the writer's thread, in a transaction that ends before the duty's next request."""
        wake, self._is_due = self._context.wake.dependants, True
        if self._context.writer.in_loop:
            wake.set()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(wake.set)

    async def work(self) -> None:
        context, progress = self._context, 1
        self._loop = asyncio.get_running_loop()
        if not self._is_due and not await context.quick_read(chains.has_work):
            self.idle_until = inf
            return
        self._is_due = False
        while progress and not context.stop.is_set():
            changes, gates, submissions, limits = await context.writer.acall(_find)
            progress = await self._rows.in_slices("decide conditions", changes, dependants.decide_changes)
            progress += await self._move(gates)
            progress += await self._rows.in_slices("mark jobs", submissions, self._mark)
            progress += await self._give_places(limits)
        self.idle_until = inf

    async def _move(self, gates: Sequence[GateKey]) -> int:
        moved = await self._rows.in_slices("move dependent jobs", gates, self._move_part)
        if moved:
            self._context.wake.local_ces.set()
        return moved

    def _move_part(self, tx: Transaction, gates: Sequence[GateKey]) -> int:
        return dependants.move_dependants(self._context.pool, tx, gates, self._context.clock())

    async def _give_places(self, limits: Sequence[int]) -> int:
        moved = await self._rows.in_slices("move limited jobs", limits, self._give_part)
        if moved:
            self._context.wake.local_ces.set()
        return moved

    def _give_part(self, tx: Transaction, limits: Sequence[int]) -> int:
        return parallel.move_jobs(self._context.pool, tx, limits, self._context.clock())

    def _mark(self, tx: Transaction, submissions: Sequence[int]) -> int:
        return dependants.mark_parents(self._context.pool, tx, submissions)


def _find(tx: Transaction) -> tuple[list[int], list[GateKey], list[int], list[int]]:
    """The changes, gates, parent submissions and limited submissions that need work."""
    connection = tx.connection
    return (
        chains.next_changes(connection, AT_ONCE),
        chains.unsettled(connection, AT_ONCE),
        chains.unmarked(connection, AT_ONCE),
        parallel_limits.unsettled(connection, AT_ONCE),
    )
