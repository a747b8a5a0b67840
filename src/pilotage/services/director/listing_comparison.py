"""A listing compared with the one before: only submissions that may have changed are looked at again.

The comparison reads the store and changes nothing, so it runs beside the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.outside.batch.submission import STAMP_PREFIX, BatchListing, ListedTask, NativeState
from pilotage.services.director import listed_tasks
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow


@dataclass(frozen=True, slots=True)
class SettledSubmission:
    """A submission whose last look changed nothing. The same facts again change nothing either."""

    tasks: tuple[ListedTask, ...]
    live: int
    """Its pilots that have not ended."""
    epoch: str
    """The start of the batch system's controller."""


@dataclass(frozen=True, slots=True)
class ListingComparison:
    """A complete listing, and the submissions to look at."""

    listing: BatchListing
    listed: float
    """The instant of the listing."""
    tasks: Mapping[str, Sequence[ListedTask]]
    """The batch jobs by stamp."""
    rows: Sequence[PilotSubmissionRow]
    """Submissions that have not ended and may have changed."""
    live: frozenset[str]
    """The stamps of all submissions that have not ended."""
    cancel: tuple[str, ...]
    """Stamps of submissions that were given up and have batch jobs."""


def compare(
    connection: Connection,
    ce: str,
    settled: Mapping[str, SettledSubmission],
    listing: BatchListing,
    listed: float,
) -> ListingComparison:
    """Compare a complete listing with the facts at the last look at each submission."""
    tasks: dict[str, list[ListedTask]] = defaultdict(list)
    for task in listing.tasks:
        tasks[task.stamp].append(task)
    rows = pilot_submissions.live(connection, ce)
    live = pilots.live_by_submission(connection, ce)
    changed = [
        row
        for row in rows
        if _may_have_changed(settled.get(row.stamp), tasks[row.stamp], live.get(row.stamp), listing)
    ]
    known = frozenset(row.stamp for row in rows)
    others = [
        stamp
        for stamp, of_stamp in tasks.items()
        if stamp not in known
        and stamp.startswith(STAMP_PREFIX)
        and any(task.state is not NativeState.ENDED for task in of_stamp)
    ]
    cancel = tuple(sorted(pilot_submissions.ended_stamps(connection, ce, others)))
    return ListingComparison(listing, listed, tasks, changed, known, cancel)


def _may_have_changed(
    settled: SettledSubmission | None,
    tasks: Sequence[ListedTask],
    live: pilots.LiveMembers | None,
    listing: BatchListing,
) -> bool:
    if settled is None or live is None or live.killed:
        return True
    return settled != SettledSubmission(tuple(tasks), live.live, listing.epoch)


def settled_facts(
    row: PilotSubmissionRow, members: Sequence[PilotRow], tasks: Sequence[ListedTask], epoch: str
) -> SettledSubmission | None:
    """The facts of a look that has changed nothing and that no later time alone changes; else None.

    `row` and `members` are as they were before the look.
    """
    alive = [task.index for task in tasks if task.state is not NativeState.ENDED]
    waits = next(filter(listed_tasks.has_wait_reason, tasks), None)
    reason = "" if waits is None else f"{waits.native}: {waits.reason}"
    if (
        row.phase is SubmissionPhase.RELEASED
        and row.absent_since is None
        and row.reason == reason
        # A held job of another start of the controller is released again.
        and (row.epoch == epoch or all(task.state is not NativeState.HELD for task in tasks))
        and len(alive) == len(members)
        and set(alive) == {pilot.idx for pilot in members}
    ):
        return SettledSubmission(tuple(tasks), len(members), epoch)
    return None
