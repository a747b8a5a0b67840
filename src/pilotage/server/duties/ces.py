"""The duties of the CEs of the policy in force: one for batch systems, one for local CEs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pilotage.core.policy import Ce
from pilotage.server.context import Context
from pilotage.server.duties.ce import CeDuty
from pilotage.server.duties.duty import Duty

LOCAL_PERIOD = 1.0
"""Seconds between two cycles of local CEs with pilots."""

IDLE_LOCAL_PERIOD = 5.0
"""Seconds between two cycles of local CEs without pilots. New jobs wake them."""


class CesDuty(Duty):
    """The CEs of one kind.

    A CE that has gone from the policy gets no more pilots; its pilots are watched to their end.
    """

    def __init__(self, context: Context, make: Callable[[str], CeDuty]) -> None:
        super().__init__(context)
        self._make = make
        self._duties: dict[str, CeDuty] = {}

    async def cancel_all(self, *, waiting_only: bool) -> None:
        """Cancel every submission of every CE, or only the pilots that have not started."""
        for duty in self._duties.values():
            await duty.cancel_all(waiting_only=waiting_only)

    def has_running_pilots(self) -> bool:
        """Whether a pilot of any of these CEs runs."""
        return any(duty.has_running_pilots() for duty in self._duties.values())

    async def close(self) -> None:
        """End the calls to batch systems that are under way."""
        for duty in self._duties.values():
            duty.close()


class BatchCesDuty(CesDuty):
    """The CEs of batch systems. Each has a task of its own, so that a batch system that hangs holds up no other."""

    name = lease = "batch pilots"
    every = 2.0
    """Seconds between two looks at the waiting jobs. Listings are rarer: `ces.NAME.listing_period`."""

    def __init__(self, context: Context, make: Callable[[str], CeDuty]) -> None:
        super().__init__(context, make)
        self._sections: dict[str, Ce] = {}
        self._cycles: dict[str, asyncio.Task[None]] = {}

    async def work(self) -> None:
        """Begin the next cycle of each CE whose last one has ended."""
        for name, ce in self._context.pool.policy.ces.items():
            if ce.type != "local" and self._sections.get(name) != ce and not self._is_busy(name):
                if name in self._duties:
                    self._duties[name].close()
                self._duties[name], self._sections[name] = self._make(name), ce
        # A cycle that is under way, or has not ended once, tells nothing yet.
        self._rows.leave_out("serve CEs")
        for name, duty in self._duties.items():
            if self._is_busy(name):
                continue
            ended, self._cycles[name] = self._cycles.get(name), asyncio.create_task(duty.cycle())
            if ended is not None:
                await self._rows.alone("serve CEs", name, partial(_end_of, ended))

    def _is_busy(self, name: str) -> bool:
        return name in self._cycles and not self._cycles[name].done()

    async def close(self) -> None:
        """End all cycles and the commands that they wait for. A submission under way is in doubt then."""
        for cycle in self._cycles.values():
            cycle.cancel()
        await super().close()
        await asyncio.gather(*self._cycles.values(), return_exceptions=True)


class LocalCesDuty(CesDuty):
    """The local CEs. Their calls are short, so one cycle serves all of them, and new jobs wake it.

    A CE without pilots is left out of the cycles between: with many CEs they would keep the event loop busy.
    """

    name = lease = "local pilots"

    def __init__(self, context: Context, make: Callable[[str], CeDuty]) -> None:
        super().__init__(context, make)
        self._next_of_all = 0.0
        """When the CEs without pilots are served next."""

    def period(self) -> float:
        return LOCAL_PERIOD if any(duty.live for duty in self._duties.values()) else IDLE_LOCAL_PERIOD

    async def work(self) -> None:
        for name, ce in self._context.pool.policy.ces.items():
            if ce.type == "local" and name not in self._duties:
                self._duties[name] = self._make(name)
        now = self._context.monotonic()
        serves_all = self.woken or now >= self._next_of_all
        if serves_all:
            self._next_of_all = now + IDLE_LOCAL_PERIOD
        else:
            self._rows.leave_out("serve CEs")
        for name, duty in self._duties.items():
            if serves_all or duty.live:
                await self._rows.alone("serve CEs", name, duty.cycle)


async def _end_of(cycle: asyncio.Task[None]) -> None:
    await cycle
