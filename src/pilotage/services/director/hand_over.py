"""The next step of one submission after a listing, by the hand-over's table."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.pilots.handover import Action, Sight, SubmissionPhase, next_step
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director import listed_tasks
from pilotage.services.director.ce_record import ENDED_SILENTLY, CeMemory
from pilotage.services.director.released import Listed, cancel_waiting, watch_released
from pilotage.services.director.submissions import give_up
from pilotage.services.pilots.lifecycle import PilotEnd
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

MOST_RELEASES = 5
"""Calls without effect that release a submission; then it is cancelled."""

NEVER_BEGAN = "its process was never started"

_LET_GO = (SubmissionPhase.RELEASING, SubmissionPhase.RELEASED)


def take_step(
    pool: Pool,
    tx: Transaction,
    memory: CeMemory,
    row: PilotSubmissionRow,
    members: Sequence[PilotRow],
    tasks: Sequence[ListedTask],
    listed: Listed,
    now: float,
) -> Action:
    """One row of the hand-over's table for one submission. `members`: its pilots that have not ended."""
    present = [task for task in tasks if task.state is not NativeState.ENDED]
    if not members:
        return _clear(tx, row, present, now)
    phase = listed_tasks.phase_of_members(row.phase, members)
    step = next_step(phase, _sight(phase, row, tasks, listed), holds=not listed.proof)
    if step.action is Action.ADOPT:
        batch_id = listed_tasks.array_of(present[0])
        pilot_submissions.update(tx.connection, row.id, phase=step.next, batch_id=batch_id, absent_since=None)
    if SubmissionPhase.RELEASED in (phase, step.next):
        return _watch(pool, tx, memory, row, members, tasks, listed, now)
    if step.action is Action.LOOK_AGAIN:
        since = listed.at if row.absent_since is None else row.absent_since
        pilot_submissions.update(tx.connection, row.id, phase=step.next, absent_since=since)
    elif step.action is Action.ABORT:
        reason = NEVER_BEGAN if listed.proof else "the batch system does not have it"
        give_up(pool, tx, row, PilotEnd.NEVER_STARTED, reason, now)
        if not row.releases and not listed.proof:
            memory.pause(tx, "a submission is not in the batch system", now)
        # Its release was acknowledged, so its pilots may have run.
        for pilot in members if row.releases else ():
            memory.count_silent_pilot(pool, tx, ENDED_SILENTLY, pilot.submitted, now)
    elif step.action is Action.END:
        give_up(pool, tx, row, PilotEnd.CANCELLED, "cancelled", now)
    elif step.action is Action.ADOPT:
        return Action.RELEASE
    elif step.action is Action.RELEASE:
        return _release_again(pool, tx, memory, row, members, listed, now)
    return step.action


def _watch(
    pool: Pool,
    tx: Transaction,
    memory: CeMemory,
    row: PilotSubmissionRow,
    members: Sequence[PilotRow],
    tasks: Sequence[ListedTask],
    listed: Listed,
    now: float,
) -> Action:
    watch_released(pool, tx, memory, row, members, tasks, listed, now)
    # A controller that crashed may have forgotten the release. A hold of the same controller is deliberate.
    if row.epoch == memory.epoch or not any(task.state is NativeState.HELD for task in tasks):
        return Action.NONE
    pilot_submissions.update(tx.connection, row.id, phase=SubmissionPhase.RELEASING)
    return Action.RELEASE


def _release_again(
    pool: Pool,
    tx: Transaction,
    memory: CeMemory,
    row: PilotSubmissionRow,
    members: Sequence[PilotRow],
    listed: Listed,
    now: float,
) -> Action:
    """Release a submission that a listing shows as held, with a limit: a command may end well without effect."""
    pilot_submissions.update(
        tx.connection,
        row.id,
        phase=SubmissionPhase.RELEASING,
        absent_since=None,
        reason=listed.reason,
        wait_class=listed.wait,
        wait_since=listed.at if row.wait_since is None else row.wait_since,
    )
    if row.releases < MOST_RELEASES:
        return Action.RELEASE
    reason = f"the batch system holds it after {MOST_RELEASES} releases: {listed.reason}"
    cancel_waiting(pool, tx, memory, members, reason, now)
    return Action.CANCEL


def _clear(tx: Transaction, row: PilotSubmissionRow, present: Sequence[ListedTask], now: float) -> Action:
    """A submission whose pilots have all ended: nothing of it may stay in the batch system."""
    if present and row.phase not in _LET_GO:
        return Action.CANCEL
    if not present:
        pilot_submissions.update(tx.connection, row.id, ended=now)
    return Action.NONE


def _sight(
    phase: SubmissionPhase, row: PilotSubmissionRow, tasks: Sequence[ListedTask], listed: Listed
) -> Sight:
    """The evidence of a listing about a submission."""
    states = {task.state for task in tasks}
    if listed.proof and states <= {NativeState.UNKNOWN, NativeState.ENDED}:
        return Sight.UNKNOWN if NativeState.UNKNOWN in states else Sight.STILL_ABSENT
    if NativeState.HELD in states:
        return Sight.HELD
    if states - {NativeState.ENDED}:
        return Sight.PRESENT
    # A batch job that has ended was let go before, unless it was cancelled.
    let_go = phase is SubmissionPhase.RELEASING or (phase is SubmissionPhase.IN_DOUBT and row.releases)
    if states and let_go:
        return Sight.PRESENT
    return listed.absence(row.absent_since, listed.settle)
