"""The third phase of a CE's director: it applies listings of the batch system to the submissions.

The table of core/pilots/handover.py decides on the next step of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import Action
from pilotage.core.policy import Ce
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState, cluster_of
from pilotage.services.director import listed_tasks
from pilotage.services.director.ce_director import CeDirector, OrphanedJobs
from pilotage.services.director.listing_comparison import ListingComparison, Observation, stamps_of
from pilotage.services.director.next_step import Listed, take_step, watch_released
from pilotage.services.director.submissions import BatchSteps
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import absent_pilots, ces, jobs, pilot_submissions, pilots
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

KILL_RECHECK = 5.0
"""Seconds from the cancellation of killed pilots to the next listing, if listings are rarer."""

DEFAULT_PERIOD = 60.0
"""Seconds of `ces.NAME.listing_period` for a CE that the policy has no more."""


def is_listing_due(director: CeDirector, ce: Ce | None, killed: Set[PilotId], now: float) -> bool:
    """Whether it is time for a listing. `killed`: the live pilots that an administrator has killed."""
    due = director.next_listing
    # A clock that stepped back ends the wait.
    return now >= due or due - now > _period(ce) or bool(killed - director.killed)


def plan_listing(director: CeDirector, ce: Ce | None, killed: Set[PilotId], now: float) -> None:
    """After a complete listing: set the time of the next one, soon after a kill. A pilot that waited has ended then."""
    period = _period(ce)
    again = min(period, KILL_RECHECK) if killed - director.killed else period
    director.killed, director.next_listing = frozenset(killed), now + again


def _period(ce: Ce | None) -> float:
    return DEFAULT_PERIOD if ce is None else ce.listing_period


def checked(connection: Connection, ce: str, listing: BatchListing) -> BatchListing:
    """The listing, unless it is of another cluster than the one that has the CE's pilots.

    Absence from the listing of another cluster means nothing.
    """
    before = cluster_of(ces.by_name(connection, ce).progress.epoch)
    if not listing.complete or not before or listing.cluster in ("", before):
        return listing
    if not pilot_submissions.live(connection, ce):
        return listing
    return BatchListing(
        failure=f"this is cluster {listing.cluster}, and pilots of the CE are in cluster {before}: configure"
        f" cluster {before} for the CE again until they have ended, and a CE of its own for the other one"
    )


def begin_observation(director: CeDirector, tx: Transaction, listing: BatchListing, listed: float) -> None:
    """Note the result of a listing. Its submissions follow, a few in each transaction."""
    director.memory.restore(tx)
    director.memory.note_listing(tx, listing, listed)
    director.memory.store(tx)


def observe_some(
    director: CeDirector,
    pool: Pool,
    tx: Transaction,
    comparison: ListingComparison,
    observations: Sequence[Observation],
    now: float,
) -> BatchSteps:
    """Apply the listing to some of the submissions that may have changed."""
    memory = director.memory
    memory.restore(tx)
    release, cancel, unwanted = [], [], []
    members_of = _lock_members(tx, observations)
    for observation in observations:
        row, members = observation.row, members_of[observation.row.stamp]
        # The next comparison finds out whether a further observation is needed.
        tx.delete(director.unchanged, row.stamp)
        ours, others = listed_tasks.without_doubles(row, observation.tasks)
        unwanted += [*others, *listed_tasks.killed_tasks(members, ours)]
        listed_tasks.note_batch_ids(pool, tx, members, ours)
        listed_tasks.note_cores(tx, row, members, ours, comparison.listed)
        listed = _listed(director, pool, comparison, observation, ours)
        if observation.indexes is None:
            action = take_step(pool, tx, memory, row, members, ours, listed, now)
        else:
            watch_released(pool, tx, memory, row, members, ours, listed, now)
            action = Action.NONE
        left = listed_tasks.orphaned(members, ours)
        unwanted += _orphans_to_cancel(director, pool, tx, row.stamp, left, comparison.listed)
        if action is Action.RELEASE and not others:
            # A release by stamp would let doubles start too: the listing without them releases it.
            release.append(row.stamp)
        elif action is Action.CANCEL:
            cancel.append(row.stamp)
    director.note_orphans(tx)
    memory.store(tx)
    return BatchSteps(tuple(release), tuple(cancel), tuple(unwanted))


def _lock_members(tx: Transaction, observations: Sequence[Observation]) -> Mapping[str, Sequence[PilotRow]]:
    """The live pilots to observe, by submission. Locks all of them, then the jobs of absent ones, by id."""
    stamps = [stamp for observation in observations for stamp in stamps_of(observation)]
    members: dict[str, list[PilotRow]] = {observation.row.stamp: [] for observation in observations}
    for pilot in pilots.of_submission(tx.connection, stamps):
        members[pilot.submission_stamp].append(pilot)
    absent = list[PilotId]()
    for observation in observations:
        there = {task.index for task in observation.tasks if task.state is not NativeState.ENDED}
        absent += [pilot.id for pilot in members[observation.row.stamp] if pilot.idx not in there]
    jobs.of_pilots(tx.connection, absent)
    return members


def is_noted(director: CeDirector, comparison: ListingComparison) -> bool:
    """Whether `note_unchanged` would change nothing."""
    known = director.unchanged.keys() | director.orphans.keys()
    return not comparison.back and not comparison.unchanged and known <= comparison.live


def note_unchanged(director: CeDirector, tx: Transaction, comparison: ListingComparison) -> None:
    """After all observations: note the submissions without one, watch the returned ones, forget the ended ones."""
    for stamp in comparison.back:
        pilot_submissions.reopen(tx.connection, stamp)
    unchanged = {stamp: facts for stamp, facts in director.unchanged.items() if stamp in comparison.live}
    tx.set(director, "unchanged", {**unchanged, **comparison.unchanged})
    for stamp in [*director.orphans]:
        if stamp not in comparison.live or stamp in comparison.unchanged:
            tx.delete(director.orphans, stamp)
    director.memory.restore(tx)
    director.note_orphans(tx)
    director.memory.store(tx)


def _listed(
    director: CeDirector,
    pool: Pool,
    comparison: ListingComparison,
    observation: Observation,
    tasks: Sequence[ListedTask],
) -> Listed:
    """The part of a listing that is about a submission. `tasks`: its batch jobs, without doubles."""
    whole = observation.indexes is None
    return Listed(
        comparison.listed,
        director.settle(pool),
        listed_tasks.wait_reason(tasks) if whole else observation.reason,
        listed_tasks.wait_class(tasks) if whole else observation.row.wait_class,
        observation.others,
        comparison.contradicted,
        observation.accounted,
        director.local,
    )


def _orphans_to_cancel(
    director: CeDirector, pool: Pool, tx: Transaction, stamp: str, left: Sequence[ListedTask], listed: float
) -> list[str]:
    """Note the batch jobs that have outlived their pilots. Returns the ids to cancel.

    Each has `settle` to end by itself. A pilot that was given up, and may still bring a result, is left to its time.
    """
    ends = absent_pilots.ends_of(tx.connection, [f"{stamp}/{task.index}" for task in left]) if left else {}
    since = {task.batch_id: ends[of] for task in left if (of := f"{stamp}/{task.index}") in ends}
    if not since:
        tx.delete(director.orphans, stamp)
        return []
    tx.put(director.orphans, stamp, OrphanedJobs(len(since), min(end.ended for end in since.values())))
    if director.local:
        return []
    over = listed - director.settle(pool)
    return [
        batch_id
        for batch_id, end in since.items()
        if end.ended <= over and not absent_pilots.may_bring_result(tx.connection, end)
    ]
