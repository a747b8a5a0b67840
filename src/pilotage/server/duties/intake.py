"""The duty of intake: assigned requests become elements, and steps take new blocks of their input."""

from __future__ import annotations

from functools import partial
from math import inf

from pilotage.server.duties.duty import Duty
from pilotage.services.workqueue.intake import take_slice
from pilotage.store.tables import queued_requests

REQUESTS_AT_ONCE = 500
"""Requests of one query."""
STEP = "take requests in"


class IntakeDuty(Duty):
    """Makes elements: one slice of each request in turn, so that a large request holds up no other."""

    name = lease = "intake"
    every = 1.0

    async def work(self) -> None:
        taken_in = set[int]()
        while await self._round(taken_in):
            pass
        if not taken_in:
            self.idle_until = inf

    async def _round(self, taken_in: set[int]) -> bool:
        """Take one slice of each request, also of one assigned meanwhile. Returns whether there is more to take.

        `taken_in`: requests without a further slice in this cycle.
        """
        context, last, more = self._context, 0, False
        while page := await context.quick_read(
            partial(queued_requests.to_take_in, after=last, limit=REQUESTS_AT_ONCE)
        ):
            last = page[-1]
            for request in [request for request in page if request not in taken_in]:
                if context.stop.is_set():
                    return False
                if await self._rows.alone(STEP, request, partial(self._slice, request)):
                    more = True
                else:
                    taken_in.add(request)
        return more

    async def _slice(self, request: int) -> bool:
        context, pace, now = self._context, self._rows.pace(STEP), self._context.clock()
        size = min(pace.size, context.pool.policy.requests.intake_slice)
        return await context.writer.acall(
            lambda tx: pace.measured(
                size, lambda: take_slice(context.work.work_queue, tx, request, now, size)
            )
        )
