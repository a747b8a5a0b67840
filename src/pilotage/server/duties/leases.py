"""The lease duty: heartbeats, stalled pilots, lapsed offers, expired leases, and jobs that are due again."""

from __future__ import annotations

import logging
from functools import partial

from pilotage.server.context import Context
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.row_by_row import each
from pilotage.services.pilots import banned_owners, leases
from pilotage.services.policy import bans, site_states

log = logging.getLogger(__name__)


class LeaseDuty(Duty):
    """Sends the heartbeat first, so that leases are extended by an outage before any of them expires.

    Every server sends heartbeats, tracks its pilots and takes back its own offers. Only the server with the duty's
    lease expires leases of pilots.
    """

    name = "leases"
    every = 1.0
    """Seconds between two cycles of the lease duty."""

    def __init__(
        self, context: Context, duty_leases: DutyLeases | None = None, longest_gap: float | None = None
    ) -> None:
        """`longest_gap`: seconds between two cycles that are no outage; None: as the rules of leases say."""
        super().__init__(context)
        self._duty_leases = duty_leases
        self._longest_gap = longest_gap
        self._alive_at = 0.0
        self._begun: float | None = None
        """The first heartbeat. In the first seconds each cycle sends one: the rest of a short life is no outage."""
        self._reachable_until: float | None = None
        """When this server last certainly received messages of pilots; None: it has just started."""

    async def work(self) -> None:
        # One instant for the whole cycle: a pause between heartbeat and expiry must not expire leases.
        now = self._context.clock()
        await self._send_heartbeat(now)
        await self._forget_watchers(now)
        await self._enforce_bans(now)
        steps = (self._lapse_offers, self._note_stalled, self._expire_as_duty)
        await each([partial(step, now) for step in steps])

    async def _send_heartbeat(self, now: float) -> None:
        pool, writer, reachable = self._context.pool, self._context.writer, self._reachable_until
        gap = self._longest_gap
        paused = reachable is not None and now - reachable > (
            leases.longest_pause(pool.policy) if gap is None else gap
        )
        begun = now if self._begun is None else self._begun
        period = leases.ALIVE_PERIOD if now - begun > leases.ALIVE_PERIOD else 0.0
        if reachable is None or paused or not 0 <= now - self._alive_at < period:
            credit = await writer.acall(
                lambda tx: leases.heartbeat(
                    pool,
                    tx,
                    now,
                    begins=reachable is None,
                    paused_since=reachable if paused else None,
                    longest_gap=leases.LONGEST_GAP if gap is None else gap,
                )
            )
            self._alive_at, self._begun = now, begun
            if credit:
                # Every start extends the leases.
                level = logging.INFO if reachable is None else logging.WARNING
                log.log(level, "extended all leases by %.0f s after an outage or a step of the clock", credit)
        self._reachable_until = now

    async def _forget_watchers(self, now: float) -> None:
        pool = self._context.pool
        if any(until <= now for until in list(pool.jobs.followed.values())):
            await self._context.writer.acall(lambda tx: leases.forget_watchers(pool, tx, now))

    async def _enforce_bans(self, now: float) -> None:
        pool = self._context.pool
        if site_states.has_ended(pool.offers, now):
            await self._context.writer.acall(lambda tx: site_states.end_states(pool, tx, now))
            self._context.wake.local_ces.set()
        if bans.has_open_bans(pool.offers, now):
            await self._context.writer.acall(lambda tx: bans.expire_bans(pool, tx, now))
            while await self._context.writer.acall(lambda tx: banned_owners.send_away(pool, tx)):
                pass
            while await self._context.writer.acall(lambda tx: bans.enforce_bans(pool, tx, now)):
                self._context.wake.local_ces.set()

    async def _lapse_offers(self, now: float) -> None:
        pool = self._context.pool
        lapsed = await self._rows.step(
            "take back offers",
            lambda _: leases.lapsing(pool, now),
            lambda tx, pilots: leases.lapse_offers(pool, tx, now, pilots),
        )
        if lapsed:
            self._context.wake.local_ces.set()

    async def _note_stalled(self, now: float) -> None:
        pool = self._context.pool
        writer = self._context.writer
        orphans = self._duty_leases is None or self._duty_leases.holds(self.name)
        while not await writer.acall(lambda tx: leases.load_watch(pool, tx, now, orphans=orphans)):
            pass
        await self._rows.step(
            "note stalled pilots",
            lambda tx: leases.silent(pool, tx, now),
            lambda tx, pilots: leases.note_stalled(pool, tx, now, pilots),
        )

    async def _expire_as_duty(self, now: float) -> None:
        if self._duty_leases is None:
            await self._expire(now)
        else:
            await self._duty_leases.run(self.name, lambda: self._expire(now))

    async def _expire(self, now: float) -> None:
        pool = self._context.pool
        lost = await self._rows.step(
            "expire leases",
            lambda tx: leases.over(pool.peers, tx, now),
            lambda tx, pilots: leases.expire(pool, tx, now, pilots),
        )
        due = await self._rows.step(
            "requeue jobs",
            lambda tx: leases.due(tx, now),
            lambda tx, jobs: leases.requeue_due(pool, tx, now, jobs),
        )
        if lost or due:
            self._context.wake.local_ces.set()
