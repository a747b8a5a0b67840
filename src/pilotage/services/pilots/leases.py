"""The duties around leases: signs of life, outages, stalled pilots, ended leases, offers nobody confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite

from pilotage.core.handover import outage_credit
from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.states import JobState
from pilotage.core.policy import Policy
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pilots.lifecycle import LEASE_OVER, PilotEnd, end_silent_pilot, forget_unheard
from pilotage.services.pool.peers import Heartbeat, Peers, PeerUpdate
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

REGULAR_GAP = 2 * ALIVE_PERIOD
"""Beside other servers, a gap up to this is regular: the others are there, and only have not written it yet."""

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
    """Write the alive row; after an outage move all leases first. Returns the credit given, in seconds.

    `begins`: the server has just been started, so without other servers any time since the last alive row is an outage.
    `paused_since`: a running server has heard nobody since that instant. `longest_gap`: a longer one is an outage.

    An outage is a time in which no server wrote the alive row, so one server credits it. A pause of one server beside
    others moves the leases of its own pilots. The credit is never more than the time away.
    """
    beat = pool.peers.heartbeat(tx, now, pool.server.policy_version)
    now, known = beat.now, instance.load(tx.connection)
    assert known is not None
    credit = outage_credit(
        known.alive_at, now, longest_gap=_longest(pool.policy, beat, begins, paused_since, longest_gap)
    )
    if credit:
        _credit_all(pool, tx, credit, now, begins=begins)
        detail = f"no sign of life for {now - known.alive_at:.0f} s: all leases moved by {credit:.0f} s"
        record(tx.connection, pool.ids.events, at=now, kind="outage", actor="server", detail=detail)
    # Another server may have credited an outage since the last heartbeat here. It has moved the row here by as much.
    theirs = 0.0
    if beat.before is not None and isfinite(pool.server.alive_at):
        theirs = beat.before - pool.server.alive_at
    shifted, paused = theirs + credit, 0.0
    if paused_since is not None and now - paused_since - theirs > longest_pause(pool.policy):
        paused = now - paused_since - shifted
    if paused > 0.0:
        pilots.extend_leases_of_server(tx.connection, pool.peers.server, paused)
        detail = f"this server heard nobody for {paused:.0f} s: the leases of its pilots moved by as much"
        record(tx.connection, pool.ids.events, at=now, kind="outage", actor="server", detail=detail)
        shifted += paused
    _shift_memory(pool, tx, shifted)
    gap = now - known.alive_at
    if (credit and gap > LONGEST_GAP) or gap < -SHORTEST_STEP_BACK:
        kept_since = now - pool.policy.accounting.history
        usage.insert_outage(tx.connection, known.alive_at, now, kept_since)
    if credit < 0:
        clock_steps.shift_deadlines(tx.connection, credit, now)
    instance.heartbeat(tx.connection, now)
    tx.set(pool.server, "alive_at", now)
    return shifted


def _longest(
    policy: Policy, beat: Heartbeat, begins: bool, paused_since: float | None, longest_gap: float
) -> float:
    """Seconds between two alive rows that are no outage."""
    if not begins and paused_since is None:
        return longest_gap
    longest = 0.0 if begins else longest_pause(policy)
    return longest if beat.alone else max(longest, REGULAR_GAP)


def _credit_all(pool: Pool, tx: Transaction, credit: float, now: float, *, begins: bool) -> None:
    """Move all leases in the store.

    A lease that was given after a step back of the clock may be far younger than the last alive row. So none ends
    before pilots can renew it. A server that starts does this only for leases that were over long before: otherwise
    the lease of a dead pilot would not end while the server starts again and again.
    """
    heartbeats = [ce.heartbeat for ce in pool.policy.ces.values()]
    earliest = now + max(heartbeats, default=30.0) * 2
    below = now - LONGEST_GAP if begins and credit > 0 else earliest
    pilots.extend_leases(tx.connection, credit, earliest, below)
    agents.extend_leases(tx.connection, credit, earliest, below)
    held_jobs.extend_offers(tx.connection, credit)
    if credit > 0 and pool.peers.shared:
        servers.add_outage(tx.connection, credit, pool.peers.server)


def _shift_memory(pool: Pool, tx: Transaction, seconds: float) -> None:
    """Move the times in memory at which pilots were heard, as the leases were moved."""
    if not seconds:
        return
    known = pool.pilots
    tx.set(known, "unconfirmed", {pilot: at + seconds for pilot, at in known.unconfirmed.items()})
    tx.set(known, "last_seen", {pilot: seen + seconds for pilot, seen in known.last_seen.items()})
    known.watch.shift(seconds)
    tx.on_rollback(lambda: known.watch.shift(-seconds))
    known.rows.clear()


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
    asked = over(pool.peers, tx, now) if gone is None else gone
    locked = [pilots.lock_expired(tx.connection, pilot, now, pool.peers.server) for pilot in asked]
    rows = [row for row in locked if row is not None]
    # Messages at other servers lock jobs in the order of ids, so all are locked before the first pilot ends.
    jobs.of_pilots(tx.connection, [row.id for row in rows])
    for row in rows:
        end_silent_pilot(pool, tx, row, PilotEnd.LEASE_OVER, LEASE_OVER, now)
    return len(rows)


def lapsing(pool: Pool, now: float) -> list[PilotId]:
    """Pilots with offers that may have lapsed, at most `MOST`."""
    return pool.pilots.unconfirmed_before(now - pool.policy.jobs.offer_timeout, MOST)


def lapse_offers(pool: Pool, tx: Transaction, now: float, of: Sequence[PilotId] | None = None) -> int:
    """Offers that nobody has confirmed in time go back. `of`: offers to these pilots alone, else to all."""
    before, lapsed = now - pool.policy.jobs.offer_timeout, 0
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    asked = lapsing(pool, now) if of is None else of
    if not asked:
        return 0
    # Pilots first, then all their jobs, each in the order of ids: messages at other servers lock them so, too.
    places = {place.id: place for place in pilots.by_ids(tx.connection, asked)}
    moves.load(job for place in places.values() for job in place.jobs)
    matched = [job for job in moves.rows.values() if job.state is JobState.MATCHED]
    since = jobs.offer_times(tx.connection, [job.id for job in matched])
    for pilot in asked:
        offered = [job for job in matched if job.pilot == pilot]
        for job in offered:
            if since[job.id] < before:
                moves.free(job, "offer-lost", "nobody confirmed it", places[pilot])
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
    # Another server may hear a pilot at this moment. It waits for the lock, and then finds the jobs Stalled; or it was
    # first, and the pilot speaks to it now.
    quiet = [pilot for pilot in of if still_silent(pilot)]
    if not quiet:
        return 0
    others, servers_of = _other_servers(pool.peers, tx), pilots.lock_running(tx.connection, quiet)
    stalling = [pilot for pilot, server in servers_of.items() if server not in others]
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    for pilot in stalling:
        tx.add(pool.pilots.stalled, pilot)
    for job in jobs.of_pilots(tx.connection, stalling):
        if job.state is JobState.RUNNING:
            moves.move(job, "stalled", JobState.STALLED, f"pilot {job.pilot} is silent")
    moves.write()
    return len(stalling)
