"""The duty that books the core-seconds of pilots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pilotage.core.ids import PilotId
from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.loop_turns import in_turns
from pilotage.services.pilots.costs import (
    IN_ONE_TRANSACTION,
    Booking,
    book_pilots,
    save_bookings,
    unbooked,
)
from pilotage.store.writer.transaction import Transaction

BOOKING_PERIOD = 30.0
"""Seconds between two passes."""

PILOTS_PER_SECOND = 200
"""Live pilots booked a second at most, on average: with more pilots the passes are rarer."""

MAX_LOAD = 0.1
"""Maximum fraction of the event loop's time."""


class CostDuty(Duty):
    """Books the pilots that this server has heard. The server with the duty's lease also books ended ones."""

    name = "costs"

    def __init__(self, context: Context, duty_leases: DutyLeases | None = None) -> None:
        super().__init__(context)
        self._duty_leases = duty_leases

    def period(self) -> float:
        return max(BOOKING_PERIOD, len(self._context.pool.pilots.heard) / PILOTS_PER_SECOND)

    async def work(self) -> None:
        context = self._context
        heard, now = dict(context.pool.pilots.heard), context.clock()
        ended = self._duty_leases is None or self._duty_leases.holds(self.name)
        rows = await context.quick_read(lambda connection: unbooked(connection, heard, now, ended=ended))
        if not rows:
            return
        if not context.writer.in_loop:
            made = await asyncio.to_thread(lambda: list(book_pilots(context.readers.connection(), rows)))
            await self._save([booking for bookings in made for booking in bookings])
            return
        async for bookings in in_turns(
            book_pilots(context.readers.connection(), rows), context.monotonic, MAX_LOAD
        ):
            await self._save(bookings)
            if context.stop.is_set():
                return

    async def _save(self, bookings: Sequence[Booking]) -> None:
        """Save bookings. A pilot that cannot be booked stays unbooked."""
        by_pilot = {booking.pilot: booking for booking in bookings}

        def save(tx: Transaction, pilots: Sequence[PilotId]) -> int:
            save_bookings(tx, [by_pilot[pilot] for pilot in pilots])
            return len(pilots)

        await self._rows.in_slices("save bookings", sorted(by_pilot), save, IN_ONE_TRANSACTION)
