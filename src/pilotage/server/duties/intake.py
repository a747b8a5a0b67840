"""The duty of intake: assigned requests become elements, and steps take new blocks of their input."""

from __future__ import annotations

import logging

from pilotage.core.errors import Overloaded, Superseded
from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, SlicePace
from pilotage.services.workqueue.intake import take_slice
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.tables import queued_requests

log = logging.getLogger(__name__)

INTAKE_PERIOD = 1.0
"""Seconds between two cycles."""
REQUESTS_AT_ONCE = 500
"""Requests of one query."""


class IntakeDuty:
    """Makes the elements of one request after the other, in slices. A request that fails does not stop the others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pace = SlicePace(SLICE_AIM if context.in_loop else POSTGRESQL_AIM)
        self._failing: set[int] = set()

    async def cycle(self) -> None:
        context = self._context
        new = await context.quick_read(
            lambda connection: queued_requests.for_intake(connection, REQUESTS_AT_ONCE)
        )
        for request in new:
            await self._take_in(request)
        last = 0
        while growing := await context.quick_read(
            lambda connection, after=last: queued_requests.that_grow(  # type: ignore[misc]
                connection, after, REQUESTS_AT_ONCE
            )
        ):
            for request in growing:
                await self._take_in(request)
            last = growing[-1]

    async def _take_in(self, request: int) -> None:
        try:
            while await self._slice(request):
                pass
        except (Overloaded, Superseded, ServerEvicted):
            raise
        except Exception:
            if request not in self._failing:
                self._failing.add(request)
                log.exception("the intake of request %d failed; it will be tried again", request)
            return
        self._failing.discard(request)

    async def _slice(self, request: int) -> bool:
        context, pace, now = self._context, self._pace, self._context.clock()
        size = min(pace.size, context.pool.policy.requests.intake_slice)
        return await context.writer.acall(
            lambda tx: pace.measured(size, lambda: take_slice(context.work_queue, tx, request, now, size))
        )
