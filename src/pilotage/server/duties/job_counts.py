"""The duty of the counters of jobs: changes that transactions have appended are added to the counters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from pilotage.server.duties.duty import Duty
from pilotage.store.tables import job_counts
from pilotage.store.writer.transaction import Transaction

CHANGES_AT_ONCE = 2000
"""Changes of one query."""


class JobCountsDuty(Duty):
    """Adds changes to the counters in slices. Reading is exact before and after, but cheaper after."""

    name = lease = "counts"
    every = 1.0
    """Seconds between two cycles. One without changes costs one small query."""

    async def work(self) -> None:
        last = 0
        while not self._context.stop.is_set():
            changes = await self._context.quick_read(
                partial(job_counts.not_added, after=last, most=CHANGES_AT_ONCE)
            )
            if not changes and not last:
                self.idle_until = inf
            await self._rows.in_slices("add changes", changes, self._add)
            if len(changes) < CHANGES_AT_ONCE:
                return
            last = changes[-1]

    def _add(self, tx: Transaction, part: Sequence[int]) -> int:
        job_counts.add(tx.connection, part)
        return len(part)
