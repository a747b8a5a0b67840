"""The duty of the director: in each iteration it decides how many pilots are submitted for which queue, and where."""

from __future__ import annotations

import asyncio
from random import Random
from time import perf_counter

from pilotage.server.context import Context
from pilotage.server.director_state import ActedIteration, new_seed
from pilotage.services.director.demand import (
    DemandCounts,
    Iteration,
    begin,
    match_ces,
    post_orders,
    read_counts,
)
from pilotage.services.director.unneeded import UnneededPilots, has_waiting_pilots

SLICE = 0.002
"""Seconds of work in one turn of the event loop."""

MAX_LOAD = 0.25
"""Maximum fraction of the event loop's time."""

CES_AT_ONCE = 8
"""CEs whose queues are matched in one request to the writer."""


async def compute_iteration(context: Context, seed: int) -> Iteration:
    """Decide an iteration from the present facts, in short turns. Nothing is ordered."""
    pool, writer, now = context.pool, context.writer, context.clock()
    policy, orders = pool.policy, dict(pool.pilot_orders)
    # The counts are aggregated by the database, which does not need Python's lock for that.
    counts: DemandCounts = await asyncio.to_thread(
        lambda: read_counts(context.readers.connection(), policy, orders, now)
    )
    load = context.submit_pools.load()
    work: Iteration = await writer.acall(lambda _: begin(pool, counts, load, now))
    number = len(work.facts.ces)
    for first in range(0, number, CES_AT_ONCE):
        last = min(number, first + CES_AT_ONCE)
        await writer.acall(lambda _, first=first, last=last: match_ces(pool, work, first, last))  # type: ignore[misc]
    rng = Random(seed)  # noqa: S311
    if context.in_loop:
        await _in_turns(work, rng)
    else:
        await asyncio.to_thread(lambda: [None for _ in work.decide(rng)])
    return work


async def _in_turns(work: Iteration, rng: Random) -> None:
    begun = perf_counter()
    for _ in work.decide(rng):
        worked = perf_counter() - begun
        if worked >= SLICE:
            await asyncio.sleep(worked / MAX_LOAD - worked)
            begun = perf_counter()


class DirectorDuty:
    """Runs the iterations when they are due. One that takes long does not hold up the CEs' own cycles."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._running: asyncio.Task[None] | None = None
        self._next = 0.0
        self._unneeded = UnneededPilots()

    async def cycle(self) -> None:
        """Begin an iteration if one is due. Raises the error of the last one."""
        if self._running is not None:
            if not self._running.done():
                return
            ended, self._running = self._running, None
            await ended
        if self._is_due():
            self._running = asyncio.create_task(self.iterate())

    def _is_due(self) -> bool:
        pool, now = self._context.pool, self._context.clock()
        settings = pool.policy.director
        batch_ces = [name for name, ce in pool.policy.ces.items() if ce.type != "local"]
        if not any(name in pool.local_nodes for name in batch_ces):
            return False
        # A clock that stepped back ends the wait.
        waits = settings.demand == "document" and self._next - settings.period <= now < self._next
        # An iteration without queues decides nothing, so the period begins with the first waiting queue.
        if settings.demand == "matched" and has_waiting_pilots(pool):
            return True
        return not waits and any(entry.waiting for entry in list(pool.queues.index.entries.values()))

    async def iterate(self) -> None:
        """Decide one iteration, and leave its orders for the CEs' own cycles."""
        context, pool, state = self._context, self._context.pool, self._context.director
        self._next = context.clock() + pool.policy.director.period
        context.submit_pools.admit()
        seed, state.next_seed = state.next_seed, new_seed()
        work = await compute_iteration(context, seed)
        pilots: int = await context.writer.acall(lambda tx: post_orders(pool, tx, work))
        await context.writer.acall(lambda tx: self._unneeded.cancel(pool, tx, work, context.clock()))
        number = 1 if state.last is None else state.last.number + 1
        state.last = ActedIteration(number, seed, work, pilots)

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
