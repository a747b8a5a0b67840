"""The duty of the roll-up: ends of pool jobs become states of elements and requests."""

from __future__ import annotations

import logging
from time import monotonic

from pilotage.core.errors import Overloaded, Superseded
from pilotage.core.workqueue.roll_up import ROLLED
from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, SlicePace
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.tables import job_outcomes, releasing

log = logging.getLogger(__name__)

ROLL_UP_PERIOD = 0.25
"""Seconds between two cycles. One without ended jobs costs one small query."""

REQUESTS_PER_SECOND = 50
"""Requests that are looked at by themselves, on average: their elements may have changed without an ended job."""

SHORTEST_LOOK = 1.0
"""Seconds between two looks at all requests, at least."""


class RollUpDuty:
    """Uses the ends of jobs in slices, and advances the requests whose elements have changed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pace = SlicePace(SLICE_AIM if context.in_loop else POSTGRESQL_AIM)
        self._programs = ProgramCache()
        self._failing: set[int] = set()
        self._next_look = 0.0

    async def cycle(self) -> None:
        context = self._context
        requests: set[int] = set()
        if not await context.quick_read(job_outcomes.is_empty):
            requests = await self._use_outcomes()
            context.wake_release.set()
        if (now := monotonic()) >= self._next_look:
            active = await context.quick_read(
                lambda connection: releasing.in_states(connection, sorted(ROLLED))
            )
            requests.update(active)
            self._next_look = now + max(SHORTEST_LOOK, len(active) / REQUESTS_PER_SECOND)
        for request in sorted(requests):
            await self._advance(request)

    async def _use_outcomes(self) -> set[int]:
        """Use all ends of jobs; returns the requests of elements that have ended."""
        context, requests = self._context, set[int]()
        while not context.stop.is_set():
            size, defaults = self._pace.size, context.pool.policy.requests.retry_rules()
            result = await context.writer.acall(
                lambda tx, size=size, defaults=defaults: self._pace.measured(  # type: ignore[misc]
                    size, lambda: roll_up.roll_up(tx, self._programs, defaults, context.clock(), size)
                )
            )
            requests |= result.requests
            if result.outcomes < size:
                break
        return requests

    async def _advance(self, request: int) -> None:
        """Advance one request. If it fails, the others go on, and it is tried again."""
        context = self._context
        try:
            moved = await context.writer.acall(lambda tx: roll_up.advance(tx, request, context.clock()))
        except (Overloaded, Superseded, ServerEvicted):
            raise
        except Exception:
            if request not in self._failing:
                self._failing.add(request)
                log.exception("the roll-up of request %d failed; it will be tried again", request)
            return
        self._failing.discard(request)
        if moved:
            context.wake_intake.set()
