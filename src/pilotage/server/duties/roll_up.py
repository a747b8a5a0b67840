"""The duty of the roll-up: ends of pool jobs become states of elements and requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from pilotage.core.workqueue.roll_up import ROLLED
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.store.tables import job_outcomes, releasing
from pilotage.store.tables.job_outcomes import Outcome
from pilotage.store.writer.transaction import Transaction

REQUESTS_PER_SECOND = 50
"""Requests that are looked at by themselves, on average: their elements may have changed without an ended job."""

ADVANCE = "advance requests"

OUTCOMES_AT_ONCE = 2000
"""Ends of jobs of one query."""

SHORTEST_LOOK = 1.0
"""Seconds between two looks at all requests, at least."""


class RollUpDuty(Duty):
    """Uses the ends of jobs in slices, and advances the requests whose elements have changed."""

    name = lease = "roll-up"
    every = 0.25
    """Seconds between two cycles. One without ended jobs costs one small query."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._programs = ProgramCache()
        self._next_look = 0.0

    async def work(self) -> None:
        context = self._context
        requests: set[int] = set()
        is_settled = await context.quick_read(job_outcomes.is_empty)
        if not is_settled:
            requests = await self._use_outcomes()
            context.wake.release.set()
        if (now := context.monotonic()) >= self._next_look:
            active = await context.quick_read(
                lambda connection: releasing.in_states(connection, sorted(ROLLED))
            )
            requests.update(active)
            self._next_look = now + max(SHORTEST_LOOK, len(active) / REQUESTS_PER_SECOND)
            if is_settled and not active:
                self.idle_until = inf
        else:
            self._rows.leave_out(ADVANCE)
        for request in sorted(requests):
            await self._rows.alone(ADVANCE, request, partial(self._advance, request))

    async def _use_outcomes(self) -> set[int]:
        """Use all ends of jobs; returns the requests of elements that have ended."""
        context, requests, last = self._context, set[int](), 0

        def use(tx: Transaction, part: Sequence[Outcome]) -> int:
            defaults = context.pool.policy.requests.retry_rules()
            now = context.clock()
            has_place = roll_up.places_of(context.work.work_queue, now)
            requests.update(roll_up.roll_up(tx, self._programs, defaults, now, part, has_place))
            return len(part)

        while not context.stop.is_set():
            outcomes = await context.quick_read(partial(job_outcomes.after, last=last, most=OUTCOMES_AT_ONCE))
            await self._rows.in_slices("use ends of jobs", outcomes, use)
            if len(outcomes) < OUTCOMES_AT_ONCE:
                break
            last = outcomes[-1].id
        return requests

    async def _advance(self, request: int) -> None:
        context = self._context
        if await context.writer.acall(lambda tx: roll_up.advance(tx, request, context.clock())):
            context.wake.intake.set()
