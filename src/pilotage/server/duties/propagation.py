"""The duty that carries out changes of requests at their elements and jobs."""

from __future__ import annotations

import logging

from pilotage.core.errors import Overloaded, Superseded
from pilotage.server.context import Context
from pilotage.server.duties.row_by_row import POSTGRESQL_AIM, SLICE_AIM, SlicePace
from pilotage.services.workqueue.propagation import Propagation
from pilotage.store.engine.connection import ServerEvicted
from pilotage.store.tables import cancelling

log = logging.getLogger(__name__)

PROPAGATION_PERIOD = 0.5
"""Seconds between two cycles. One without changed requests costs one small query."""


class PropagationDuty:
    """Carries out the change of one request after the other, in slices. One that fails does not stop the others."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pace = SlicePace(SLICE_AIM if context.in_loop else POSTGRESQL_AIM)
        self._failing: set[int] = set()

    async def cycle(self) -> None:
        context = self._context
        changed = await context.quick_read(cancelling.propagating)
        for request in changed:
            try:
                await self._carry_out(Propagation(context.work_queue, request))
            except (Overloaded, Superseded, ServerEvicted):
                raise
            except Exception:
                if request not in self._failing:
                    self._failing.add(request)
                    log.exception("the change of request %d failed; it will be tried again", request)
            else:
                self._failing.discard(request)
        if changed:
            context.wake_release.set()

    async def _carry_out(self, run: Propagation) -> None:
        context, over = self._context, False
        while not over and not context.stop.is_set():
            size = self._pace.size
            over = await context.writer.acall(
                lambda tx, size=size: self._pace.measured(  # type: ignore[misc]
                    size, lambda: run.run(tx, context.clock(), size)
                )
            )
