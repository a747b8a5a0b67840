"""The pilots of a released submission, as a complete listing shows them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from pilotage.core.pilots.handover import Sight, SubmissionPhase
from pilotage.core.pilots.states import PilotState
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director.ce_record import CALLED_HOME, ENDED_SILENTLY, CeMemory
from pilotage.services.pilots.lifecycle import end_absent_pilot
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction


class Listed(NamedTuple):
    """A complete listing."""

    at: float
    absence: Sight
    """The evidence about a pilot that it does not have."""
    reason: str
    """Why jobs of the submission wait; empty: none does."""
    others: int = 0
    """Live pilots of the submission about which it says nothing new."""


def watch_released(
    pool: Pool,
    tx: Transaction,
    memory: CeMemory,
    row: PilotSubmissionRow,
    members: Sequence[PilotRow],
    tasks: Sequence[ListedTask],
    listed: Listed,
    now: float,
) -> None:
    """Look at pilots of a released submission: all that have not ended, but for `listed.others`.

    A batch job that is listed as ended has ended. One that is not listed at all has ended if a second listing,
    a settle time later, does not have it either.
    """
    of_index = {task.index: task for task in tasks}
    unlisted, left = 0, listed.others
    for pilot in members:
        task = of_index.get(pilot.idx, of_index.get(None))
        ended = task is not None and task.state is NativeState.ENDED
        unlisted += task is None
        absent = ended or (task is None and listed.absence is Sight.STILL_ABSENT)
        if absent and pool.last_seen.get(pilot.id, -inf) <= listed.at:
            _lose(pool, tx, memory, pilot, task, now)
        else:
            left += 1
    absent_since = (listed.at if row.absent_since is None else row.absent_since) if unlisted else None
    if not left:
        pilot_submissions.update(tx.connection, row.id, ended=now, reason=listed.reason)
    elif (row.phase, row.reason, row.absent_since) != (
        SubmissionPhase.RELEASED,
        listed.reason,
        absent_since,
    ):
        pilot_submissions.update(
            tx.connection,
            row.id,
            phase=SubmissionPhase.RELEASED,
            reason=listed.reason,
            absent_since=absent_since,
        )


def _lose(
    pool: Pool, tx: Transaction, memory: CeMemory, pilot: PilotRow, task: ListedTask | None, now: float
) -> None:
    reason = ENDED_SILENTLY
    if task is not None:
        reason += f": {task.native}" + (f", {task.reason}" if task.reason else "")
    new = end_absent_pilot(pool, tx, pilot, reason, now)
    if new is PilotState.ABORTED:
        memory.count_silent_pilot(pool, tx, reason, pilot.submitted, now)
    elif new is PilotState.FAILED and not pilot.take_number:
        memory.count_failure(pool, tx, f"{CALLED_HOME}, but {reason}", now)
