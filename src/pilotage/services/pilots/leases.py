"""The duties around leases: signs of life, outages, stalled pilots, ended leases, offers nobody confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pilotage.core.handover import outage_credit
from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.states import JobState
from pilotage.core.policy import Policy
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pilots.lifecycle import LEASE_OVER, PilotEnd, end_silent_pilot, forget_unheard
from pilotage.services.pool.peers import Peers, PeerUpdate
from pilotage.services.pool.pilot_watch import LoadProgress
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import servers
from pilotage.store.tables import agents, clock_steps, held_jobs, instance, jobs, pilots, usage
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

ALIVE_PERIOD = 5.0
"""Seconds between two alive rows."""

LONGEST_GAP = 30.0
"""A longer gap between two alive rows is an outage, a suspended machine or a step of the clock."""

SHORTEST_STEP_BACK = 1.0
"""A clock that was set back by more invalidates the use that was charged, which may be that of the future now."""

SHORTEST_PAUSE = 3.0
"""A running server that did nothing for less than this was only busy."""

MISSED_HEARTBEATS = 4.0
"""A pilot that has been silent for this number of heartbeats is stalled."""

MOST = 500

LOADED_AT_ONCE = 200
"""Pilots read from the store in one transaction when the watch begins."""


def longest_pause(policy: Policy) -> float:
    """Seconds that may lie between two cycles of the lease duty; after a longer pause leases are credited.

    A third of the shortest lease: the rest of it is left whenever a pilot has just been heard.
    """
    shortest = min((ce.lease for ce in policy.ces.values()), default=LONGEST_GAP)
    return min(LONGEST_GAP, max(SHORTEST_PAUSE, shortest / 3))


def heartbeat(
    pool: Pool,
    tx: Transaction,
    now: float,
    *,
    begins: bool = False,
    paused_since: float | None = None,
    longest_gap: float = LONGEST_GAP,
) -> float:
    """Write the alive row; after a gap move all leases first. Returns the credit given, in seconds.

    `begins`: the server has just been started, so the time since the last alive row is a gap, however short.
    `paused_since`: a running server has heard nobody since that instant. `longest_gap`: a longer one is an outage.
    """
    now = pool.peers.heartbeat(tx, now, pool.server.policy_version)
    known = instance.load(tx.connection)
    assert known is not None
    away_since, longest = known.alive_at, 0.0 if begins else longest_gap
    if paused_since is not None:
        # Another server may have written the row meanwhile.
        away_since, longest = min(away_since, paused_since), longest_pause(pool.policy)
    heartbeats = [ce.heartbeat for ce in pool.policy.ces.values()]
    renewal = max(heartbeats, default=30.0) * 2
    credit = outage_credit(away_since, now, longest_gap=longest, renewal=renewal)
    if credit:
        _move_leases(pool, tx, credit, now + renewal)
        detail = f"no sign of life for {now - away_since:.0f} s: all leases moved by {credit:.0f} s"
        record(tx.connection, pool.ids.events, at=now, kind="outage", actor="server", detail=detail)
    gap = now - known.alive_at
    if (credit and gap > LONGEST_GAP) or gap < -SHORTEST_STEP_BACK:
        kept_since = now - pool.policy.accounting.history
        usage.insert_outage(tx.connection, known.alive_at, now, kept_since)
    if credit < 0:
        clock_steps.shift_deadlines(tx.connection, credit, now)
    instance.heartbeat(tx.connection, now)
    tx.set(pool.server, "alive_at", now)
    return credit


def _move_leases(pool: Pool, tx: Transaction, credit: float, earliest: float) -> None:
    """Move all leases by the credit. None ends before `earliest`: some may be younger than a step of the clock."""
    pilots.extend_leases(tx.connection, credit, earliest)
    agents.extend_leases(tx.connection, credit, earliest)
    held_jobs.extend_offers(tx.connection, credit)
    tx.set(pool.pilots, "unconfirmed", {pilot: at + credit for pilot, at in pool.pilots.unconfirmed.items()})
    tx.set(pool.pilots, "last_seen", {pilot: seen + credit for pilot, seen in pool.pilots.last_seen.items()})
    pool.pilots.watch.shift(credit)
    tx.on_rollback(lambda: pool.pilots.watch.shift(-credit))
    pool.pilots.rows.clear()
    pool.peers.publish(tx, PeerUpdate(moved=credit))


def watch_output(pool: Pool, tx: Transaction, job: JobId, until: float) -> None:
    """Ask the pilot of a job to send its output until then, whichever server it speaks to."""
    tx.put(pool.jobs.followed, job, until)
    pool.peers.publish(tx, PeerUpdate(followed={job: until}))


def forget_watchers(pool: Pool, tx: Transaction, now: float) -> None:
    """Drop jobs with output that nobody watches any longer."""
    tx.set(pool.jobs, "followed", {job: until for job, until in pool.jobs.followed.items() if until > now})


def over(peers: Peers, tx: Transaction, now: float) -> list[PilotId]:
    """Pilots whose lease is over, at most `MOST`."""
    return pilots.with_expired_lease(tx.connection, now, peers.server, MOST)


def expire(pool: Pool, tx: Transaction, now: float, gone: Sequence[PilotId] | None = None) -> int:
    """End pilots whose lease is over and take their jobs; how many. `gone`: of these alone, else of all."""
    ended = 0
    for pilot in over(pool.peers, tx, now) if gone is None else gone:
        row = pilots.lock_expired(tx.connection, pilot, now, pool.peers.server)
        if row is not None:
            end_silent_pilot(pool, tx, row, PilotEnd.LEASE_OVER, LEASE_OVER, now)
            ended += 1
    return ended


def lapsing(pool: Pool, now: float) -> list[PilotId]:
    """Pilots with offers that may have lapsed, at most `MOST`."""
    return pool.pilots.unconfirmed_before(now - pool.policy.jobs.offer_timeout, MOST)


def lapse_offers(pool: Pool, tx: Transaction, now: float, of: Sequence[PilotId] | None = None) -> int:
    """Offers that nobody has confirmed in time go back. `of`: offers to these pilots alone, else to all."""
    before, lapsed = now - pool.policy.jobs.offer_timeout, 0
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    for pilot in lapsing(pool, now) if of is None else of:
        offered = [job for job in moves.of_pilot(pilot) if job.state is JobState.MATCHED]
        since = jobs.offer_times(tx.connection, [job.id for job in offered])
        place = pilots.by_id(tx.connection, pilot) if offered else None
        for job in offered:
            if since[job.id] < before:
                moves.free(job, "offer-lost", "nobody confirmed it", place)
                lapsed += 1
        later = [since[job.id] for job in offered if since[job.id] >= before]
        pool.pilots.set_unconfirmed(tx, pilot, min(later, default=None))
    moves.write()
    return lapsed


def due(tx: Transaction, now: float) -> list[JobId]:
    """Rescheduled jobs whose delay is over, at most `MOST`."""
    return [job.id for job in jobs.due_for_retry(tx.connection, now, MOST)]


def requeue_due(pool: Pool, tx: Transaction, now: float, only: Sequence[JobId] | None = None) -> int:
    """Rescheduled jobs whose delay is over wait again; how many. `only`: these alone, else all."""
    ready = jobs.due_for_retry(tx.connection, now, MOST, only)
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    for job in ready:
        moves.requeue(job)
    moves.write()
    return len(ready)


def load_watch(pool: Pool, tx: Transaction, now: float, *, orphans: bool = True) -> bool:
    """Watch the next running pilots of the store that nobody else listens to; whether all are watched.

    Pilots that call this server later are watched from their call on. With `orphans` this server also listens to pilots
    of servers that are gone: it reads the pilots again whenever a server has gone.
    """
    watch, others = pool.pilots.watch, _other_servers(pool.peers, tx)
    if not orphans:
        tx.set(watch, "orphans_of", None)
        tx.set(watch, "loading", None)
        return True
    known = watch.orphans_of
    if known is None or known - others:
        tx.set(watch, "loading", LoadProgress())
    if known != others:
        tx.set(watch, "orphans_of", others)
    if (progress := watch.loading) is None:
        return True
    rows = pilots.running_after(tx.connection, progress.ce, progress.pilot, LOADED_AT_ONCE)
    for row in rows:
        if row.server not in others and row.id not in pool.pilots.stalled:
            if row.id not in pool.pilots.last_seen:
                tx.put(pool.pilots.last_seen, row.id, now)
            watch.add(row.id, row.ce, pool.pilots.last_seen[row.id])
    complete = len(rows) < LOADED_AT_ONCE
    tx.set(watch, "loading", None if complete else LoadProgress(rows[-1].ce, rows[-1].id))
    return complete


def _other_servers(peers: Peers, tx: Transaction) -> frozenset[str]:
    if not peers.shared:
        return frozenset()
    return frozenset(server.name for server in servers.live(tx.connection)) - {peers.server}


def patience(policy: Policy, ce: str) -> float:
    """Seconds for which a pilot of a CE may be silent before it is stalled."""
    facts = policy.ces.get(ce)
    return MISSED_HEARTBEATS * (facts.heartbeat if facts else 30.0)


def silent(pool: Pool, tx: Transaction, now: float) -> list[PilotId]:
    """Pilots of this server that have missed too many heartbeats and are not marked as stalled yet, at most `MOST`.

    It costs nothing for pilots whose deadline is not over. Pilots that have ended, or speak to another server now, are
    forgotten.
    """
    quiet = pool.pilots.watch.find_silent(
        pool.pilots.last_seen, pool.pilots.stalled, partial(patience, pool.policy), now
    )[:MOST]
    if not quiet:
        return quiet
    running, others = pilots.servers_of_running(tx.connection, quiet), _other_servers(pool.peers, tx)
    ours = [pilot for pilot in quiet if pilot in running and running[pilot] not in others]
    for pilot in set(quiet).difference(ours):
        forget_unheard(pool, tx, pilot)
    return ours


def note_stalled(pool: Pool, tx: Transaction, now: float, of: Sequence[PilotId] | None = None) -> int:
    """Show the jobs of silent pilots as Stalled; only the end of the lease takes them away. How many pilots.

    `of`: these alone, unless they were heard meanwhile; else all that are silent.
    """
    if of is None:
        while not load_watch(pool, tx, now):
            pass
        of = silent(pool, tx, now)
    still_silent = partial(
        pool.pilots.watch.is_silent,
        last_seen=pool.pilots.last_seen,
        patience=partial(patience, pool.policy),
        now=now,
    )
    stalling = [pilot for pilot in of if still_silent(pilot)]
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    for pilot in stalling:
        tx.add(pool.pilots.stalled, pilot)
        for job in jobs.of_pilot(tx.connection, pilot):
            if job.state is JobState.RUNNING:
                moves.move(job, "stalled", JobState.STALLED, f"pilot {pilot} is silent")
    moves.write()
    return len(stalling)
