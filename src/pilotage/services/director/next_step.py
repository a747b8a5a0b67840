"""The next step of one submission after a complete listing, by the hand-over's table, and the ends of its pilots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from pilotage.core.pilots.handover import Action, Seen, Sight, SubmissionPhase, next_step, sight_of
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.pilots.states import PilotState
from pilotage.core.pilots.waits import WaitClass, deadline_of, has_deadline
from pilotage.core.policy import Policy
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director import listed_tasks
from pilotage.services.director.ce_record import CALLED_HOME, ENDED_SILENTLY, CeMemory
from pilotage.services.director.submissions import give_up
from pilotage.services.pilots.leases import patience
from pilotage.services.pilots.lifecycle import PilotEnd, end_absent_pilot
from pilotage.services.pilots.orders import tell_to_leave
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

MOST_RELEASES = 5
"""Calls without effect that release a submission; then it is cancelled."""

NEVER_BEGAN = "its process was never started"

_LET_GO = (SubmissionPhase.RELEASING, SubmissionPhase.RELEASED)


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete listing, as one submission is looked at."""

    at: float
    settle: float
    """Seconds between the two listings that prove an absence."""
    reason: str
    """Why jobs of the submission wait; empty: none does."""
    wait: str
    """The class of that wait."""
    others: int = 0
    """Live pilots of the submission about which it says nothing new."""
    contradicted: float | None = None
    """The instant `ListingComparison.contradicted` of this listing."""
    accounted: Collection[int] = ()
    """Pilots whose batch jobs run, as the accounting says."""
    proof: bool = False
    """The machine of a local CE tells of each pilot whether it has ended: no second answer is needed."""

    def absence(self, since: float | None, settle: float) -> Sight:
        """The evidence about a pilot or submission that it lacks, as all listings since then do."""
        if since is not None and self.contradicted is not None:
            since = max(since, self.contradicted)
        return sight_of(Seen.ABSENT, since, self.at, settle)


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
        # A batch job that was let go may have ended before a listing showed it.
        batch_id = listed_tasks.array_of((present or tasks)[0])
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
            memory.pause(tx, "a submission is not in the batch system", row.submitted, now)
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
    """Observe pilots of a released submission: all that have not ended, but for `listed.others`.

    A batch job that is listed as ended has ended. One that is not listed at all has ended if a second listing,
    a settle time later, does not have it either. A sign of life of its pilot contradicts, and so does the accounting.
    """
    of_index = {task.index: task for task in tasks}
    left = listed.others
    for pilot in members:
        task = of_index.get(pilot.idx, of_index.get(None))
        if (
            _has_ended(pool.policy, pilot, task, listed)
            and pool.pilots.last_seen.get(pilot.id, -inf) <= listed.at
        ):
            _lose(pool, tx, memory, pilot, task, now)
        else:
            left += 1
            _note_absence(pool, tx, pilot, task, listed)
    if not left:
        pilot_submissions.update(tx.connection, row.id, ended=now, reason=listed.reason)
        return
    _note_wait(tx, row, listed)
    if listed.wait and listed.at >= _deadline(row, listed):
        _end_wait(pool, tx, memory, members, of_index, listed, now)


def _has_ended(policy: Policy, pilot: PilotRow, task: ListedTask | None, listed: Listed) -> bool:
    if task is not None:
        return task.state is NativeState.ENDED
    settle = listed.settle
    if pilot.started is not None:
        # A pilot that has missed no heartbeat yet could not contradict.
        settle = max(settle, patience(policy, pilot.ce))
    return (
        pilot.idx not in listed.accounted and listed.absence(pilot.absent_since, settle) is Sight.STILL_ABSENT
    )


def _note_absence(
    pool: Pool, tx: Transaction, pilot: PilotRow, task: ListedTask | None, listed: Listed
) -> None:
    """Store since when listings lack a pilot; each contradiction begins it again."""
    since = None
    if task is None:
        known = pilot.absent_since is not None and pilot.idx not in listed.accounted
        since = pilot.absent_since if known else listed.at
    if since != pilot.absent_since:
        pilot.absent_since = since
        pool.pilots.rows.forget(pilot)
        pilots.update(tx.connection, pilot.id, absent_since=since)


def _note_wait(tx: Transaction, row: PilotSubmissionRow, listed: Listed) -> None:
    since = row.wait_since if listed.wait == row.wait_class else listed.at
    changes = {
        "phase": SubmissionPhase.RELEASED,
        "reason": listed.reason,
        "wait_class": listed.wait,
        "wait_since": since if listed.wait else None,
        "releases": 0,
        "absent_since": None,
    }
    if any(getattr(row, name) != value for name, value in changes.items()):
        pilot_submissions.update(tx.connection, row.id, **changes)


def _deadline(row: PilotSubmissionRow, listed: Listed) -> float:
    since = row.wait_since if listed.wait == row.wait_class and row.wait_since is not None else listed.at
    return deadline_of(WaitClass(listed.wait), since, listed.settle)


def _end_wait(
    pool: Pool,
    tx: Transaction,
    memory: CeMemory,
    members: Sequence[PilotRow],
    of_index: Mapping[int | None, ListedTask],
    listed: Listed,
    now: float,
) -> None:
    """Cancel the batch jobs that wait in vain: their place is for others."""
    waiting = [
        pilot
        for pilot in members
        if (task := of_index.get(pilot.idx, of_index.get(None))) is not None
        and task.wait is not None
        and has_deadline(task.wait)
        and pilot.started is None
    ]
    cancel_waiting(pool, tx, memory, waiting, f"it waited too long ({listed.wait}): {listed.reason}", now)


def cancel_waiting(
    pool: Pool, tx: Transaction, memory: CeMemory, waiting: Sequence[PilotRow], reason: str, now: float
) -> None:
    """Order the batch jobs of pilots that do not start to be cancelled, and pause their CE."""
    fresh = [pilot for pilot in waiting if not pilot.leave]
    for pilot in fresh:
        tell_to_leave(pool, tx, pilot, LeaveOrder.KILL, reason)
    if fresh:
        memory.pause(tx, reason, max(pilot.submitted for pilot in fresh), now)
        memory.count_failure(pool, tx, reason, now)


def _lose(
    pool: Pool, tx: Transaction, memory: CeMemory, pilot: PilotRow, task: ListedTask | None, now: float
) -> None:
    reason = ENDED_SILENTLY
    if task is not None and (words := [word for word in (task.native, task.reason) if word]):
        reason += f": {', '.join(words)}"
    new = end_absent_pilot(pool, tx, pilot, reason, now)
    if new is PilotState.ABORTED:
        memory.count_silent_pilot(pool, tx, reason, pilot.submitted, now)
    elif new is PilotState.FAILED and not pilot.take_number:
        memory.count_failure(pool, tx, f"{CALLED_HOME}, but {reason}", now)
