"""The duty of the director: in each iteration it decides how many pilots are submitted for which queue, and where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from pilotage.core.ids import PilotId
from pilotage.server.context import Context
from pilotage.server.director_state import ActedIteration, new_seed
from pilotage.server.duties.duty import Duty
from pilotage.server.loop_turns import in_turns, run_turn
from pilotage.services.director.demand import (
    DemandCounts,
    Iteration,
    post_orders,
    prepare,
    read_counts,
)
from pilotage.services.director.unneeded import (
    CANCELLED_AT_ONCE,
    UnneededPilots,
    cancel_pilots,
    has_waiting_pilots,
)
from pilotage.store.writer.transaction import Transaction

MAX_LOAD = 0.25
"""Maximum fraction of the event loop's time."""


async def compute_iteration(context: Context, seed: int) -> Iteration:
    """Decide an iteration from the present facts, in short turns. Nothing is ordered."""
    pool, writer, now = context.pool, context.writer, context.clock()
    policy, orders = pool.policy, dict(pool.provisioning.orders)
    # The counts are aggregated by the database, which does not need Python's lock for that.
    counts: DemandCounts = await asyncio.to_thread(
        lambda: read_counts(context.readers.connection(), policy, orders, now)
    )
    load = context.duties.submit_pools.load()
    steps, iterations = prepare(pool, counts, load, now), list[Iteration]()

    def turn(_: Transaction) -> None:
        # After a failed commit the writer runs a request again. Steps that were made stay made.
        if not iterations and (work := run_turn(steps, context.monotonic)) is not None:
            iterations.append(work)

    while not iterations:
        await writer.acall(turn)
    [work] = iterations
    rng = Random(seed)  # noqa: S311
    if context.writer.in_loop:
        async for _ in in_turns(work.decide(rng), context.monotonic, MAX_LOAD):
            pass
    else:
        await asyncio.to_thread(lambda: [None for _ in work.decide(rng)])
    return work


class DirectorDuty(Duty):
    """Runs the iterations when they are due. One that takes long does not hold up the CEs' own cycles."""

    name = "director"
    lease = "batch pilots"
    every = 2.0
    """Seconds between two looks whether an iteration is due."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._running: asyncio.Task[None] | None = None
        self._next = 0.0
        self._unneeded = UnneededPilots()

    async def work(self) -> None:
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
        if not any(name in pool.ces.nodes for name in batch_ces):
            return False
        # A clock that stepped back ends the wait.
        waits = settings.demand == "dirac" and self._next - settings.period <= now < self._next
        # An iteration without queues decides nothing, so the period begins with the first waiting queue.
        if settings.demand == "matched" and has_waiting_pilots(pool):
            return True
        return not waits and any(entry.waiting for entry in list(pool.queues.index.entries.values()))

    async def iterate(self) -> None:
        """Decide one iteration, and leave its orders for the CEs' own cycles."""
        context, pool, state = self._context, self._context.pool, self._context.duties.director
        self._next = context.clock() + pool.policy.director.period
        context.duties.submit_pools.admit()
        seed, state.next_seed = state.next_seed, new_seed(pool.secrets)
        work = await compute_iteration(context, seed)
        pilots: int = await context.writer.acall(lambda tx: post_orders(pool, tx, work))
        await self._cancel_unneeded(work)
        number, parts = 1, list[Sequence[object]]()
        if state.last is not None:
            number, parts = state.last.number + 1, state.last.work.parts()
        state.last = ActedIteration(number, seed, work, pilots)
        # The last iteration but one is freed now.
        while parts:
            parts.pop()
            await asyncio.sleep(0)

    async def _cancel_unneeded(self, work: Iteration) -> None:
        """Cancel waiting pilots that are not needed, a few in each transaction."""
        context, now = self._context, self._context.clock()
        unneeded = await asyncio.to_thread(
            lambda: self._unneeded.note(context.readers.connection(), work, now)
        )

        def cancel(tx: Transaction, pilots: Sequence[PilotId]) -> int:
            cancel_pilots(context.pool, tx, work, pilots, now)
            return len(pilots)

        await self._rows.in_slices("cancel unneeded pilots", unneeded, cancel, CANCELLED_AT_ONCE)

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
