"""The duties around leases: signs of life, outages, stalled pilots, ended leases, offers nobody confirmed."""

from __future__ import annotations

from pilotage.core.handover import Retry, after_failure, outage_credit
from pilotage.core.ids import PilotId
from pilotage.core.jobs.states import JobState
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.services.moves import Moves, counted
from pilotage.services.pool import Pool
from pilotage.store import instance, jobs, pilots, servers, use
from pilotage.store.connection import GivenUp, instant
from pilotage.store.events import record
from pilotage.store.jobs import JobRow
from pilotage.store.pilots import Heard, PilotRow
from pilotage.store.transaction import Transaction

ALIVE_PERIOD = 5.0
"""Seconds between two alive rows."""

LONGEST_GAP = 30.0
"""A longer gap between two alive rows is an outage, a suspended machine or a step of the clock."""

MISSED_HEARTBEATS = 4.0
"""A pilot is stalled when it has been silent for so many heartbeats."""

MOST = 500


def sign_of_life(pool: Pool, tx: Transaction, now: float) -> float:
    """Write the alive row; after a gap move all leases first. Returns the credit given, in seconds."""
    if pool.company is not None:
        instance.lock(tx.connection)
        now = instant(tx.connection, now)
        if not servers.alive(tx.connection, pool.company.server, now, pool.policy_version):
            raise GivenUp(
                "this server was silent for so long that the others have given it up", hint="start it again"
            )
    known = instance.load(tx.connection)
    assert known is not None
    heartbeats = [ce.heartbeat for ce in pool.policy.ces.values()]
    credit = outage_credit(
        known.alive_at, now, longest_gap=LONGEST_GAP, renewal=max(heartbeats, default=30.0) * 2
    )
    if credit:
        pilots.extend_leases(tx.connection, credit)
        jobs.extend_offers(tx.connection, credit)
        pool.unconfirmed = {pilot: at + credit for pilot, at in pool.unconfirmed.items()}
        pool.pilots.clear()
        pool.seen = {pilot: seen + credit for pilot, seen in pool.seen.items()}
        pool.tell(tx, moved=credit)
        detail = f"no sign of life for {now - known.alive_at:.0f} s: all leases moved by {credit:.0f} s"
        record(tx.connection, pool.events, at=now, kind="outage", actor="server", detail=detail)
        kept_since = now - pool.policy.accounting.history
        use.note_outage(tx.connection, known.alive_at, now, kept_since)
    instance.alive(tx.connection, now)
    return credit


def expire(pool: Pool, tx: Transaction, now: float) -> int:
    """Take the jobs of pilots whose lease is over; the number of such pilots."""
    gone = pilots.with_lease_before(tx.connection, now)
    for pilot in gone:
        pool.forget_pilot(pilot)
        moves = Moves(pool, tx, now, pool.batch(now, "server"))
        for job in jobs.of_pilot(tx.connection, pilot.id):
            take_back(moves, job, pilot)
        moves.write()
        PILOT_STATES.check(pilot.state, PilotState.FAILED)
        reason = "its lease ran out"
        pilots.update(
            tx.connection, pilot.id, state=PilotState.FAILED, ended=now, lease_until=None, reason=reason
        )
        record(
            tx.connection,
            pool.events,
            at=now,
            kind="pilot-lost",
            actor="server",
            detail=f"pilot {pilot.id}: {reason}",
            old=pilot.state,
            new=PilotState.FAILED,
        )
        pool.pilot_ended(tx, pilot.id)
    return len(gone)


def take_back(moves: Moves, job: JobRow, pilot: PilotRow, reason: str = "its pilot's lease ran out") -> None:
    """The hand-over's `expire`: a lost offer counts as nothing, a lost try as a failure."""
    if job.state is JobState.MATCHED:
        moves.free(job, "offer-lost", reason, pilot)
        return
    job = counted(job, "lease-over")
    most = moves.pool.policy.jobs.max_reschedules
    moves.cut_attempt(job, "lease over")
    if after_failure("lease-over", job.failures, most=most, own_retries=0) is Retry.AGAIN:
        moves.retry(job, "lease-over", reason, pilot)
    else:
        moves.end(job, "lease-over", JobState.FAILED, f"{reason} ({job.failures} times)", pilot)


def lapse_offers(pool: Pool, tx: Transaction, now: float) -> int:
    """Offers that nobody has confirmed in time go back."""
    before, lapsed = now - pool.policy.jobs.offer_timeout, 0
    moves = Moves(pool, tx, now, pool.batch(now, "server"))
    for pilot in pool.takes_before(before, MOST):
        offered = [job for job in moves.of_pilot(pilot) if job.state is JobState.MATCHED]
        since = jobs.offered_since(tx.connection, [job.id for job in offered])
        place = pilots.by_id(tx.connection, pilot) if offered else None
        for job in offered:
            if since[job.id] < before:
                moves.free(job, "offer-lost", "nobody confirmed it", place)
                lapsed += 1
        later = [since[job.id] for job in offered if since[job.id] >= before]
        pool.looked_at_takes(tx, pilot, min(later, default=None))
    moves.write()
    return lapsed


def requeue_due(pool: Pool, tx: Transaction, now: float) -> int:
    """Rescheduled jobs whose delay is over wait again."""
    due = jobs.due(tx.connection, now, MOST)
    moves = Moves(pool, tx, now, pool.batch(now, "server"))
    for job in due:
        moves.requeue(job)
    moves.write()
    return len(due)


def _listened_to(pool: Pool, tx: Transaction, *, orphans: bool) -> list[Heard]:
    """The pilots that speak to this server; with `orphans` also those whose server is not there any more."""
    live, company = pilots.heard(tx.connection), pool.company
    if company is None:
        return live
    others = {one.name for one in servers.live(tx.connection)} - {company.server}
    ours = [
        pilot for pilot in live if pilot.server == company.server or (orphans and pilot.server not in others)
    ]
    _forget_others(pool, tx, {pilot.id for pilot in ours})
    return ours


def _forget_others(pool: Pool, tx: Transaction, ours: set[PilotId]) -> None:
    """Pilots that speak to another server now, or have ended by it."""
    for pilot in [one for one in (*pool.seen, *pool.finished) if one not in ours]:
        pool.pilot_ended(tx, pilot)


def note_stalled(pool: Pool, tx: Transaction, now: float, *, orphans: bool = True) -> int:
    """Show the jobs of silent pilots as Stalled; only the end of the lease takes them away.

    Of several servers each listens to those that speak to it, and one to the `orphans` of a server that is gone.
    """
    marked = 0
    for pilot in _listened_to(pool, tx, orphans=orphans):
        if pilot.state != PilotState.RUNNING or pilot.id in pool.stalled:
            continue
        ce = pool.policy.ces.get(pilot.ce)
        patience = MISSED_HEARTBEATS * (ce.heartbeat if ce else 30.0)
        if now - pool.seen.setdefault(pilot.id, now) < patience:
            continue
        pool.stalled.add(pilot.id)
        tx.on_rollback(lambda pilot=pilot: pool.stalled.discard(pilot.id))  # type: ignore[misc]
        moves = Moves(pool, tx, now, pool.batch(now, "server"))
        for job in jobs.of_pilot(tx.connection, pilot.id):
            if job.state is JobState.RUNNING:
                moves.move(job, "stalled", JobState.STALLED, f"pilot {pilot.id} is silent")
        moves.write()
        marked += 1
    return marked
