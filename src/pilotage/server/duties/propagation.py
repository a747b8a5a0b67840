"""The duty that carries out changes of requests at their elements and jobs."""

from __future__ import annotations

from functools import partial
from math import inf

from pilotage.server.duties.duty import Duty
from pilotage.services.workqueue.propagation import Propagation
from pilotage.store.tables import cancelling

STEP = "carry out changes of requests"


class PropagationDuty(Duty):
    """Carries out the change of one request after the other, in slices. One that fails does not stop the others."""

    name = lease = "propagation"
    every = 0.5
    """Seconds between two cycles. One without changed requests costs one small query."""

    async def work(self) -> None:
        context = self._context
        changed = await context.quick_read(cancelling.propagating)
        for request in changed:
            run = Propagation(context.work.work_queue, request)
            await self._rows.alone(STEP, request, partial(self._carry_out, run))
        if changed:
            context.wake.release.set()
        else:
            self.idle_until = inf

    async def _carry_out(self, run: Propagation) -> None:
        context = self._context
        await self._rows.until_done(STEP, lambda tx, size: run.run(tx, context.clock(), size), context.stop)
