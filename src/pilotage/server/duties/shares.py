"""The duties of shares: priorities, share corrections, and the ledger of use."""

from __future__ import annotations

import asyncio
from functools import partial

from pilotage.core.shares.correction import Corrections
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.services.shares import corrections
from pilotage.store.tables import usage

NEWCOMERS_PERIOD = 10.0
"""Minimum seconds between two wake-ups of the correctors because of new entities."""
TRIES = 3
"""How often use is charged in a cycle, at most, until it can be stored."""


class PriorityDuty(Duty):
    """Applies changed priorities to the index, a few queues in each transaction.

    It also wakes the correctors soon after the first job of a new entity, without waiting for their period.
    """

    name = "priorities"
    every = 1.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._newcomers_at = 0.0

    async def work(self) -> None:
        pool, writer = self._context.pool, self._context.writer
        priorities, now = pool.queues.index.priorities, self._context.clock()
        if priorities.newcomers and not 0 <= now - self._newcomers_at < NEWCOMERS_PERIOD:
            self._newcomers_at = now
            await writer.acall(lambda tx: tx.set(priorities, "newcomers", False))
            self._context.wake.shares.set()
        if pool.queues.priority_updates is None and not priorities.has_changes:
            return
        while not await writer.acall(lambda _: corrections.apply_priorities(pool.queues)):
            pass


class ShareDuty(Duty):
    """Charges use to the ledger, and computes the share corrections from it."""

    name = lease = "shares"

    def period(self) -> float:
        return self._context.pool.policy.correction.period

    async def work(self) -> None:
        pool, writer = self._context.pool, self._context.writer
        charged = await self._charge()
        waiting = await writer.acall(lambda _: corrections.waiting_entities(pool))
        computed = await asyncio.to_thread(self._compute, waiting)
        await writer.acall(lambda tx: corrections.apply_corrections(pool, tx, computed, charged.as_of))

    async def _charge(self) -> corrections.LedgerUpdate:
        """Charge use and store it, again if all buckets got invalid meanwhile.

        While that goes on, as when many pilots come back, the corrections need not wait: the next cycle stores.
        """
        book = self._context.duties.book
        book.history = self._context.pool.policy.accounting.history
        for _ in range(TRIES):
            charged = await asyncio.to_thread(lambda: book.charge(self._context.readers.connection()))
            try:
                for part in book.saving(charged):
                    await self._context.writer.acall(partial(corrections.save_use, save=part))
                break
            except corrections.LedgerOutdated:
                continue
        return charged

    def _compute(self, waiting: corrections.WaitingEntities) -> Corrections:
        last, memory = usage.corrector_memory(self._context.readers.connection())
        return corrections.compute_corrections(self._context.duties.book, waiting, last, memory)


class LedgerDuty(Duty):
    """Updates the ledger for reports from the store, if another server computes the corrections."""

    name = "ledger"
    every = 60.0

    def __init__(self, context: Context, duty_leases: DutyLeases) -> None:
        super().__init__(context)
        self._duty_leases = duty_leases

    async def work(self) -> None:
        context = self._context
        if not self._duty_leases.holds("shares"):
            context.duties.book.history = context.pool.policy.accounting.history
            await asyncio.to_thread(lambda: context.duties.book.charge(context.readers.connection()))
