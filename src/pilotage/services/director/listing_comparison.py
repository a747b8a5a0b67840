"""A listing compared with the one before: only submissions that may have changed are observed again.

Of most of them, only the pilots that may have changed are observed. The comparison reads the store and changes
nothing, so it runs beside the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.pilots.waits import WaitClass, has_deadline
from pilotage.outside.batch.submission import STAMP_PREFIX, BatchListing, ListedTask, NativeState
from pilotage.services.director import listed_tasks
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import absent_pilots, pilot_submissions
from pilotage.store.tables.pilot_submissions import LiveMembers, PilotSubmissionRow, SubmissionMember


@dataclass(frozen=True, slots=True)
class UnchangedSubmission:
    """A submission that an observation would not change. The same facts again change nothing either."""

    tasks: tuple[ListedTask, ...]
    live: int
    """Its pilots that have not ended."""
    epoch: str
    """The start of the batch system's controller."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A submission to observe, in the transaction that applies the listing."""

    row: PilotSubmissionRow
    tasks: Sequence[ListedTask]
    """Its batch jobs; of the pilots in `indexes` only, if there are."""
    indexes: frozenset[int] | None = None
    """The pilots to observe; None: all. Only a released submission has some that need no observation."""
    others: int = 0
    """Live pilots that need no observation."""
    reason: str = ""
    """With `indexes`: why its jobs wait."""
    accounted: frozenset[int] = frozenset()
    """Pilots without a batch job that waits or runs whose batch jobs run, as the accounting says."""


@dataclass(frozen=True, slots=True)
class ListingComparison:
    """A complete listing, and the submissions to observe."""

    listing: BatchListing
    listed: float
    """The instant of the listing."""
    live: frozenset[str]
    """The stamps of all submissions that have not ended."""
    cancel: tuple[str, ...]
    """Stamps of submissions that were given up and have batch jobs."""
    observations: Sequence[Observation]
    """Submissions that have not ended and may have changed."""
    unchanged: Mapping[str, UnchangedSubmission] = field(default_factory=dict)
    """Further submissions that an observation would not change, by stamp."""
    contradicted: float | None = None
    """It has none of the CE's batch jobs, and a pilot called home at this instant since the first such listing.

    Then it proves no absence: the absence of all pilots settles from there.
    """
    back: tuple[str, ...] = ()
    """Stamps of submissions that had ended, and have batch jobs of pilots that may come back."""


def compare(
    connection: Connection,
    ce: str,
    noted: Mapping[str, UnchangedSubmission],
    listing: BatchListing,
    listed: float,
) -> ListingComparison:
    """Compare a complete listing with the store, and with the facts at the last observation of each submission."""
    tasks: dict[str, list[ListedTask]] = defaultdict(list)
    for task in listing.tasks:
        tasks[task.stamp].append(task)
    rows = pilot_submissions.live(connection, ce)
    live = pilot_submissions.live_by_submission(connection, ce)
    observations, unchanged = list[Observation](), dict[str, UnchangedSubmission]()
    for row in rows:
        before, of_row = noted.get(row.stamp), tasks.get(row.stamp, [])
        if not _may_have_changed(before, of_row, live.get(row.stamp), listing):
            continue
        observation = None
        if row.phase is SubmissionPhase.RELEASED and (before is None or before.epoch == listing.epoch):
            members = pilot_submissions.members(connection, _stamps(row, range(row.pilots)))
            observation = _observe_some(row, of_row, members, listing.epoch)
        if isinstance(observation, UnchangedSubmission):
            unchanged[row.stamp] = observation
        else:
            observations.append(observation or Observation(row, of_row))
    known = frozenset(row.stamp for row in rows)
    ended = pilot_submissions.ended_stamps(connection, ce, _given_up(tasks, known))
    back = _with_pilots_that_may_come_back(connection, {stamp: tasks[stamp] for stamp in ended})
    cancel = tuple(sorted(ended - back))
    contradicted = (
        None if not rows or known & tasks.keys() else absent_pilots.last_contradiction(connection, ce)
    )
    return ListingComparison(
        listing, listed, known, cancel, observations, unchanged, contradicted, tuple(sorted(back))
    )


def stamps_of(observation: Observation) -> list[str]:
    """The stamps of the pilots to observe."""
    row, indexes = observation.row, observation.indexes
    return _stamps(row, range(row.pilots) if indexes is None else sorted(indexes))


def _stamps(row: PilotSubmissionRow, indexes: Sequence[int]) -> list[str]:
    return [f"{row.stamp}/{index}" for index in indexes]


def _given_up(tasks: Mapping[str, Sequence[ListedTask]], known: frozenset[str]) -> list[str]:
    """The stamps of live batch jobs that may be of submissions that have ended."""
    return [
        stamp
        for stamp, of_stamp in tasks.items()
        if stamp not in known
        and stamp.startswith(STAMP_PREFIX)
        and any(task.state is not NativeState.ENDED for task in of_stamp)
    ]


def _with_pilots_that_may_come_back(
    connection: Connection, tasks: Mapping[str, Sequence[ListedTask]]
) -> set[str]:
    """The stamps of submissions with a live batch job of a pilot that called home and was given up."""
    stamps = [
        f"{stamp}/{task.index}"
        for stamp, of_stamp in tasks.items()
        for task in of_stamp
        if task.state is NativeState.RUNNING
    ]
    failed = absent_pilots.failed_among(connection, stamps) if stamps else set()
    return {stamp.partition("/")[0] for stamp in failed}


def _may_have_changed(
    before: UnchangedSubmission | None,
    tasks: Sequence[ListedTask],
    live: LiveMembers | None,
    listing: BatchListing,
) -> bool:
    if before is None or live is None or live.killed:
        return True
    if any(task.wait is not None and has_deadline(task.wait) for task in tasks):
        return True
    return before != UnchangedSubmission(tuple(tasks), live.live, listing.epoch)


def _observe_some(
    row: PilotSubmissionRow, tasks: Sequence[ListedTask], members: Sequence[SubmissionMember], epoch: str
) -> Observation | UnchangedSubmission | None:
    """Which pilots of a released submission need an observation; None: all of them do, or the submission itself."""
    of_index = {task.index: task for task in tasks}
    if (
        None in of_index
        or len(of_index) < len(tasks)
        or listed_tasks.has_doubles(tasks)
        or any(member.leave == LeaveOrder.KILL for member in members)
        # A held job of another start of the controller is released again.
        or (row.epoch != epoch and any(task.state is NativeState.HELD for task in tasks))
        or listed_tasks.wait_class(tasks) != row.wait_class
        or (row.wait_class and has_deadline(WaitClass(row.wait_class)))
    ):
        return None
    changed = {member.idx for member in members if _needs_observation(member, of_index.get(member.idx))}
    others, live = len(members) - len(changed), {member.idx for member in members}
    if not others:
        return None
    # A batch job may outlive its pilot.
    changed |= {
        index
        for index, task in of_index.items()
        if index is not None and index not in live and task.state is not NativeState.ENDED
    }
    reason = listed_tasks.wait_reason(tasks)
    if not changed and row.reason == reason:
        return UnchangedSubmission(tuple(tasks), len(members), epoch)
    return Observation(
        row, [task for task in tasks if task.index in changed], frozenset(changed), others, reason
    )


def _needs_observation(pilot: SubmissionMember, task: ListedTask | None) -> bool:
    """Whether a listing with this batch job may change something about a live pilot."""
    if task is None or task.state is NativeState.ENDED or pilot.absent_since is not None:
        return True
    if task.state is NativeState.RUNNING and pilot.cores_from is None:
        return True
    return not listed_tasks.is_known(pilot.batch_id)
