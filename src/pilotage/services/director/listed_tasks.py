"""The batch jobs of one submission in a listing."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow

_UNRELEASED = (SubmissionPhase.HELD, SubmissionPhase.RELEASING)
"""The batch system has acknowledged it, and none of its pilots has called home."""


def without_doubles(
    row: PilotSubmissionRow, tasks: Sequence[ListedTask]
) -> tuple[list[ListedTask], list[str]]:
    """The tasks of the one array that is kept, and the ids of all others with the same stamp that have not ended."""
    alive = {task.batch_id.partition("_")[0] for task in tasks if task.state is not NativeState.ENDED}
    arrays = sorted(alive, key=_age)
    if len(arrays) < 2:
        return list(tasks), []
    kept = row.batch_id if row.batch_id in arrays else arrays[0]
    return (
        [task for task in tasks if task.batch_id.partition("_")[0] == kept],
        [array for array in arrays if array != kept],
    )


def phase_of_members(phase: SubmissionPhase, members: Sequence[PilotRow]) -> SubmissionPhase:
    """The phase of a submission. `members`: its pilots that have not ended."""
    if any(pilot.started is not None for pilot in members):
        return SubmissionPhase.RELEASED
    if phase in _UNRELEASED and all(pilot.leave == LeaveOrder.KILL for pilot in members):
        return SubmissionPhase.CANCELLING
    return phase


def killed_tasks(members: Sequence[PilotRow], tasks: Sequence[ListedTask]) -> list[str]:
    """The ids of batch jobs that have not ended though an administrator has killed their pilots."""
    killed = {pilot.idx for pilot in members if pilot.leave == LeaveOrder.KILL}
    return [task.batch_id for task in tasks if task.index in killed and task.state is not NativeState.ENDED]


def has_wait_reason(task: ListedTask) -> bool:
    """Whether the batch system says why a job waits."""
    return task.state in (NativeState.WAITING, NativeState.HELD) and bool(task.reason)


def _age(batch_id: str) -> tuple[int, str]:
    return (int(batch_id), "") if batch_id.isdigit() else (0, batch_id)
