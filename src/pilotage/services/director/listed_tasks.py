"""The batch jobs of one submission in a listing."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.pilots.waits import worst
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director.submissions import set_batch_ids
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

_UNRELEASED = (SubmissionPhase.HELD, SubmissionPhase.RELEASING)
"""The batch system has acknowledged it, and none of its pilots has called home."""


def without_doubles(
    row: PilotSubmissionRow, tasks: Sequence[ListedTask]
) -> tuple[list[ListedTask], list[str]]:
    """The tasks of the one array that is kept, and the ids of all others with the same stamp that have not ended."""
    if not any(task.array for task in tasks):
        copies = _copies(tasks, row.batch_id)
        return [task for task in tasks if task.batch_id not in copies], copies
    arrays = sorted(sorted(_live_arrays(tasks)), key=_age)
    if len(arrays) < 2:
        return list(tasks), []
    kept = row.batch_id if row.batch_id in arrays else arrays[0]
    return (
        [task for task in tasks if array_of(task) == kept],
        [array for array in arrays if array != kept],
    )


def has_doubles(tasks: Sequence[ListedTask]) -> bool:
    """Whether batch jobs of several arrays, or several of one pilot, have not ended."""
    if any(task.array for task in tasks):
        return len(_live_arrays(tasks)) > 1
    return bool(_copies(tasks, ""))


def _live_arrays(tasks: Sequence[ListedTask]) -> set[str]:
    return {array_of(task) for task in tasks if task.state is not NativeState.ENDED}


def _copies(tasks: Sequence[ListedTask], known: str) -> list[str]:
    """The ids of batch jobs without an array beside an older one of the same pilot. `known`: it is kept."""
    live = [task for task in tasks if task.state is not NativeState.ENDED]
    live.sort(key=lambda task: _age(task.batch_id))
    kept = {task.index: task for task in live if task.batch_id == known}
    return [task.batch_id for task in live if kept.setdefault(task.index, task) is not task]


def array_of(task: ListedTask) -> str:
    """The id of the task's whole submission; where the batch system has none, the task's own."""
    return task.array or task.batch_id


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


def note_batch_ids(
    pool: Pool, tx: Transaction, members: Sequence[PilotRow], tasks: Sequence[ListedTask]
) -> None:
    """Store the batch ids of pilots whose submission was not acknowledged."""
    ids = {task.index: task.batch_id for task in tasks if task.index is not None}
    set_batch_ids(pool, tx, [pilot for pilot in members if not is_known(pilot.batch_id)], ids)


def is_known(batch_id: str) -> bool:
    """Whether this is a whole batch id. A place alone says only which host was to start the pilot."""
    return bool(batch_id.partition("@")[0])


def note_cores(
    tx: Transaction,
    row: PilotSubmissionRow,
    members: Sequence[PilotRow],
    tasks: Sequence[ListedTask],
    listed: float,
) -> None:
    """Store since when pilots have cores, and until when batch jobs have them whose pilots have ended.

    `members`: the pilots of the submission that have not ended. A pilot that calls home tells its start itself.
    """
    of_index = {pilot.idx: pilot for pilot in members}
    for task in tasks:
        if task.state is not NativeState.RUNNING or task.index is None:
            continue
        pilot = of_index.get(task.index)
        if pilot is None:
            pilots.extend_cores(tx.connection, f"{row.stamp}/{task.index}", listed)
        elif pilot.cores_from is None:
            pilot.cores_from = listed
            pilots.update(tx.connection, pilot.id, cores_from=listed)


def orphaned(members: Sequence[PilotRow], tasks: Sequence[ListedTask]) -> list[ListedTask]:
    """Batch jobs that have not ended though their pilots have."""
    live = {pilot.idx for pilot in members}
    return [task for task in tasks if task.state is not NativeState.ENDED and task.index not in live]


def wait_reason(tasks: Sequence[ListedTask]) -> str:
    """Why the job waits that is least likely to start; empty: the batch system says nothing."""
    waiting = (NativeState.WAITING, NativeState.HELD)
    explained = [task for task in tasks if task.state in waiting and task.reason]
    worst_class = wait_class(explained)
    return next(
        (f"{task.native}: {task.reason}" for task in explained if (task.wait or "") == worst_class), ""
    )


def wait_class(tasks: Sequence[ListedTask]) -> str:
    """The class of the wait that is least likely to end by itself; empty: no job waits, or nothing is told."""
    return worst(task.wait for task in tasks if task.wait is not None) or ""


def _age(batch_id: str) -> tuple[int, str]:
    return (int(batch_id), "") if batch_id.isdigit() else (0, batch_id)
