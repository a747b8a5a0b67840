"""The duty of leases: signs of life, silent pilots, offers that lapse, leases that are over, jobs that wait again."""

from __future__ import annotations

import logging

from pilotage.server.context import Context
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.row_by_row import RowByRow, each
from pilotage.services.pilots import leases

log = logging.getLogger(__name__)

LEASE_PERIOD = 1.0
"""Seconds between two cycles of the lease duty."""


class LeaseDuty:
    """Signs of life first, so that an outage is credited before anything expires.

    Every server gives signs of life, listens to its pilots and sees to the offers that it made; leases are for the
    one that has the duty.
    """

    name = "leases"

    def __init__(self, context: Context, duty_leases: DutyLeases | None = None) -> None:
        self._context = context
        self._duty_leases = duty_leases
        self._alive_at = 0.0
        self._heard_until: float | None = None
        """When this server last heard pilots for certain; None: it has just been started."""
        self._rows = RowByRow(context.writer)
        context.failing_rows = self._rows.failing

    async def cycle(self) -> None:
        # One instant for the whole cycle: a pause between credit and expiry must not expire anything.
        now = self._context.clock()
        await self._send_heartbeat(now)
        await self._forget_watchers(now)
        steps = (self._lapse_offers, self._note_stalled, self._expire_as_duty)
        await each([lambda step=step: step(now) for step in steps])  # type: ignore[misc]

    async def _send_heartbeat(self, now: float) -> None:
        pool, writer, heard = self._context.pool, self._context.writer, self._heard_until
        paused = heard is not None and now - heard > leases.longest_pause(pool.policy)
        if heard is None or paused or not 0 <= now - self._alive_at < leases.ALIVE_PERIOD:
            credit = await writer.acall(
                lambda tx: leases.heartbeat(
                    pool, tx, now, begins=heard is None, paused_since=heard if paused else None
                )
            )
            self._alive_at = now
            if credit:
                # Every start gives one.
                level = logging.INFO if heard is None else logging.WARNING
                log.log(
                    level, "after an outage or a step of the clock all leases were moved by %.0f s", credit
                )
        self._heard_until = now

    async def _forget_watchers(self, now: float) -> None:
        pool = self._context.pool
        if any(until <= now for until in list(pool.followed.values())):
            await self._context.writer.acall(lambda tx: leases.forget_watchers(pool, tx, now))

    async def _lapse_offers(self, now: float) -> None:
        pool = self._context.pool
        lapsed = await self._rows.step(
            "lapse offers",
            lambda _: leases.lapsing(pool, now),
            lambda tx, of: leases.lapse_offers(pool, tx, now, of),
        )
        if lapsed:
            self._context.wake_director.set()

    async def _note_stalled(self, now: float) -> None:
        pool = self._context.pool
        orphans = self._duty_leases is None or self._duty_leases.holds(self.name)
        await self._rows.step(
            "note stalled pilots",
            lambda tx: leases.silent(pool, tx, now, orphans=orphans),
            lambda tx, of: leases.note_stalled(pool, tx, now, of),
        )

    async def _expire_as_duty(self, now: float) -> None:
        if self._duty_leases is None:
            await self._expire(now)
        else:
            await self._duty_leases.carry_out(self.name, lambda: self._expire(now))

    async def _expire(self, now: float) -> None:
        pool = self._context.pool
        lost = await self._rows.step(
            "expire leases",
            lambda tx: leases.over(pool, tx, now),
            lambda tx, gone: leases.expire(pool, tx, now, gone),
        )
        due = await self._rows.step(
            "requeue jobs",
            lambda tx: leases.due(tx, now),
            lambda tx, only: leases.requeue_due(pool, tx, now, only),
        )
        if lost or due:
            self._context.wake_director.set()
