"""The duty of the release: made jobs go to the pool as soon as its limits allow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from random import Random

from pilotage.core.workqueue.roll_up import WORKING
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.loop import pause
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.services.workqueue.release import ReleaseRun
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_jobs, releasing
from pilotage.store.tables.element_jobs import ReleasedCount
from pilotage.store.writer.transaction import Transaction

AIM = 0.002
"""Seconds for one transaction on SQLite. With its commit no write takes over 5 ms."""

MAX_LOAD = 0.1
"""Maximum fraction of the time in which the jobs in the pool are counted and the groups of made jobs are read."""

STEP = "release jobs of requests"

AGAIN = 200
"""Jobs made again by one transaction, when their cool-off is over."""


class ReleaseDuty(Duty):
    """Counts the unfinished jobs beside the writer, then releases in slices."""

    name = lease = "release"
    every = 1.0
    """Seconds between two cycles that nothing wakes."""
    aim = AIM

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._programs = ProgramCache()
        self._rng = Random(0)  # noqa: S311
        self._next_look = 0.0

    async def work(self) -> None:
        context = self._context
        cooloff_end = await self._make_again()
        requests = await context.quick_read(releasing.with_made_jobs)
        if not requests:
            left = inf if cooloff_end is None else cooloff_end - context.clock()
            self.idle_until = context.monotonic() + left
        await self._rows.together(STEP, requests, self._release)

    async def _release(self, requests: Sequence[int]) -> None:
        """Make one pass over the made jobs of these requests."""
        context = self._context
        await pause(context, max(0.0, self._next_look - context.monotonic()))
        begun = context.monotonic()
        counts = await asyncio.to_thread(lambda: _count(context.readers.connection()))
        run = ReleaseRun(context.work.work_queue, self._programs, counts, self._rng, frozenset(requests))
        while not await context.writer.acall(lambda tx: run.read_groups(tx, context.clock())):
            pass
        ended = context.monotonic()
        self._next_look = ended + (ended - begun) / MAX_LOAD
        released = 0

        def release(tx: Transaction, size: int) -> bool:
            nonlocal released
            taken = run.release(tx, size, context.clock())
            released += taken
            return taken < size

        await self._rows.until_done(STEP, release, context.stop)
        if released:
            context.wake.local_ces.set()

    async def _make_again(self) -> float | None:
        """Make jobs again whose cool-off is over. Returns when the next one is over; None: there is none."""
        context = self._context
        soonest = await context.quick_read(element_jobs.next_cooloff_end)
        if soonest is None or soonest >= context.clock():
            return soonest
        while await context.writer.acall(
            lambda tx: element_jobs.make_again(tx.connection, context.clock(), AGAIN)
        ):
            pass
        return await context.quick_read(element_jobs.next_cooloff_end)


def _count(connection: Connection) -> list[ReleasedCount]:
    return element_jobs.released_counts(connection, releasing.in_states(connection, sorted(WORKING)))
