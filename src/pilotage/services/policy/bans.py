"""Bans of users from sites: no job of the user is matched there, and running ones are killed.

A ban is a row. Every server has the bans in force in memory, as banned owners of each offer, so a match costs nothing
more. A transaction that fails reads the rows again.
"""

from __future__ import annotations

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import JobState
from pilotage.services.jobs.actions import act
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.matching.known_offers import rekey_offer_stats
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.offer_state import OfferState
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.site_rules import load_bans
from pilotage.services.pool.state import Pool
from pilotage.store.tables import bans, jobs, pilots
from pilotage.store.tables.bans import BanRow
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

SETTLE = 10.0
"""Seconds for which running jobs are looked for after a ban: another server may have matched one meanwhile."""

MOST = 500
"""Jobs ended in one transaction at most."""

SERVER = "server"


def read_bans(pool: Pool, tx: Transaction) -> None:
    """Apply the bans of the store to this server's offers."""
    if load_bans(pool.offers, tx):
        rekey_offer_stats(pool)


def ban(
    pool: Pool,
    tx: Transaction,
    owner: str,
    site: str,
    *,
    by: str,
    reason: str,
    now: float,
    until: float | None = None,
) -> BanRow:
    """Ban a user from a site, or from all sites if it is empty. A ban in force gets the new facts.

    Raises `NotFound` for a name that neither the policy nor a job has: it may be mistyped.
    """
    if owner not in pool.policy.users and not bans.has_submitted(tx.connection, owner):
        raise NotFound(
            f"the policy has no user {owner}, and no job is of {owner}",
            hint="a user whom the policy gets later can be banned then: see `pilotage policy show`",
        )
    tx.on_rollback(lambda: read_bans(pool, tx))
    bans.insert(tx.connection, owner=owner, site=site, by=by, reason=reason, now=now, until=until)
    _record(pool.ids, tx, "ban", by, f"{_subject(owner, site)}" + (f": {reason}" if reason else ""), now)
    _publish(pool, tx)
    return _find(pool.offers, owner, site)


def lift(pool: Pool, tx: Transaction, owner: str, site: str, *, by: str, reason: str, now: float) -> BanRow:
    """End a ban. Raises `NotFound`, also if another server ends it at this instant."""
    tx.on_rollback(lambda: read_bans(pool, tx))
    read_bans(pool, tx)
    row = _find(pool.offers, owner, site)
    if not bans.end(tx.connection, row.id, by=by, now=now):
        raise _not_banned(owner, site)
    _ended(pool, tx, row, by=by, reason=reason, now=now)
    return row


def expire_bans(pool: Pool, tx: Transaction, now: float) -> int:
    """End the bans whose time is over; how many. Another server may have given them more time: the row decides."""
    tx.on_rollback(lambda: read_bans(pool, tx))
    ended = 0
    for row in pool.offers.bans:
        due = row.until is not None and row.until <= now
        if due and bans.end_if_over(tx.connection, row.id, by=SERVER, now=now):
            _ended(pool, tx, row, by=SERVER, reason="its time is over", now=now)
            ended += 1
        elif due:
            read_bans(pool, tx)
    return ended


def _ended(pool: Pool, tx: Transaction, row: BanRow, *, by: str, reason: str, now: float) -> None:
    _record(pool.ids, tx, "unban", by, _subject(row.owner, row.site) + (f": {reason}" if reason else ""), now)
    _publish(pool, tx)


def _publish(pool: Pool, tx: Transaction) -> None:
    read_bans(pool, tx)
    pool.peers.publish(tx, PeerUpdate(rules=True))


def _find(offers: OfferState, owner: str, site: str) -> BanRow:
    for row in offers.bans:
        if (row.owner, row.site) == (owner, site):
            return row
    raise _not_banned(owner, site)


def _not_banned(owner: str, site: str) -> NotFound:
    place = f"at site {site}" if site else "at all sites"
    return NotFound(f"{owner} is not banned {place}", hint="`pilotage ban list` shows the bans in force")


def _subject(owner: str, site: str) -> str:
    return f"{owner} at {f'site {site}' if site else 'all sites'}"


def _record(ids: IdAllocators, tx: Transaction, kind: str, by: str, detail: str, now: float) -> None:
    actor = by if by == SERVER else f"user:{by}"
    record(tx.connection, ids.events, at=now, kind=kind, actor=actor, detail=detail)


def has_open_bans(offers: OfferState, now: float) -> bool:
    """Whether a ban is over, or running jobs of a banned user may be left."""
    return any(row.enforced is None or (row.until is not None and row.until <= now) for row in offers.bans)


def enforce_bans(pool: Pool, tx: Transaction, now: float) -> int:
    """End jobs that banned users have where they are banned; how many. Call it again until it is 0."""
    ended = 0
    for row in pool.offers.bans:
        if row.enforced is not None or ended >= MOST:
            continue
        count = _enforce(pool, tx, row, now)
        ended += count
        if not count and not 0 <= now - row.since < SETTLE:
            tx.on_rollback(lambda: read_bans(pool, tx))
            bans.set_enforced(tx.connection, row.id, now)
            read_bans(pool, tx)
    return ended


def _enforce(pool: Pool, tx: Transaction, row: BanRow, now: float) -> int:
    """Kill running jobs; take back offers, since another site may take these jobs."""
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, SERVER))
    reason = row.sentence
    running: list[JobId] = []
    offered = 0
    ids = bans.jobs_of_live_pilots(tx.connection, row.site)
    for first in range(0, len(ids), MOST):
        for job in jobs.by_ids(tx.connection, ids[first : first + MOST]).values():
            if job.pilot is None or pool.queues.identity(tx, job.queue).owner != row.owner:
                continue
            place = pilots.by_id(tx.connection, job.pilot)
            if place is None or (row.site and place.site != row.site):
                continue
            if job.state is JobState.MATCHED:
                moves.rows[job.id] = job
                moves.free(job, "banned", reason, place)
                offered += 1
            else:
                running.append(job.id)
        if len(running) + offered >= MOST:
            break
    moves.write()
    killed = act(pool, tx, "kill", running[:MOST], actor=SERVER, reason=reason, now=now, dry_run=False)
    return len(killed.done) + offered
