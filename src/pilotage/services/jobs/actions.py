"""Actions of users on jobs: kill, reschedule, redo, delete, hold, release, priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from pilotage.core.errors import InvalidInput
from pilotage.core.handover import Effect, Message, Relation, decide
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import FINAL, JOB_STATES, JobState, custody_of
from pilotage.services.jobs.dependants import block_again
from pilotage.services.jobs.queue_of_job import find_queue
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts, chains, history, jobs, parallel_limits, pilots
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

PRIORITY = "priority"
"""The verb that takes a number."""
CHUNK = 500
"""Jobs changed per transaction, so that no write takes over 5 ms."""


@dataclass(slots=True)
class ActionOutcome:
    done: list[int]
    refused: list[tuple[int, str]]


Verb = Callable[[JobTransitions, JobRow, str, PilotRow | None], None]


def act(
    pool: Pool,
    tx: Transaction,
    verb: str,
    ids: Iterable[int],
    *,
    actor: str,
    reason: str,
    now: float,
    dry_run: bool,
    priority: int | None = None,
) -> ActionOutcome:
    """Apply `verb` to at most CHUNK jobs. The caller must have checked that the actor may change them.

    `priority`: the UserPriority that the verb "priority" gives.
    """
    change = VERBS[verb] if priority is None else partial(_set_priority, priority)
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, actor))
    rows = _load_jobs(tx, verb, list(ids), dry_run=dry_run)
    places: dict[int, PilotRow | None] = {}
    outcome = ActionOutcome([], [])
    for job in rows.values():
        refusal = REFUSALS[verb](job) or _refuse_of_request(pool, tx, verb, job)
        if refusal:
            outcome.refused.append((job.id, refusal))
        else:
            outcome.done.append(job.id)
    changing = [] if dry_run else [rows[id_] for id_ in outcome.done]
    for job in changing:
        place = None
        if job.pilot is not None:
            if job.pilot not in places:
                places[job.pilot] = pilots.by_id(tx.connection, job.pilot)
            place = places[job.pilot]
        change(moves, job, reason, place)
    moves.write()
    if verb == "delete" and not dry_run:
        attempts.delete_results(tx.connection, [JobId(job) for job in outcome.done])
    return outcome


def _load_jobs(tx: Transaction, verb: str, ids: list[int], *, dry_run: bool) -> dict[int, JobRow]:
    """The jobs; ended jobs that will change are moved to the hot table and locked there.

    Reading history takes no lock. Another server may be changing the job, and is waited for by `history.restore`.
    """
    rows = jobs.by_ids(tx.connection, ids)
    ended = [job.id for job in rows.values() if job.state in FINAL and not REFUSALS[verb](job)]
    if dry_run or not ended:
        return rows
    history.restore(tx.connection, ended)
    return rows | jobs.by_ids(tx.connection, ended)


def _refuse_kill(job: JobRow) -> str:
    decision = decide(custody_of(job.state), Message.KILL, Relation.CURRENT)
    return "" if decision.effect is Effect.END else f"the job is already {job.state}"


def _kill(moves: JobTransitions, job: JobRow, reason: str, place: PilotRow | None) -> None:
    moves.attempts.cut(job, "killed")
    if job.epoch:
        # Later reports of this attempt are refused, even if the job is rescheduled before they arrive.
        job = moves.finish_taken(job, job.epoch, "killed")
    moves.end(job, "killed", JobState.KILLED, reason or "killed", place)


def _refuse_reschedule(job: JobRow) -> str:
    if job.state is JobState.DONE:
        return f"the job is Done: `pilotage reschedule --done {job.id}` runs it again in its place"
    return _refuse_redo(job)


def _refuse_redo(job: JobRow) -> str:
    if job.state in (JobState.DONE, JobState.FAILED, JobState.KILLED):
        return ""
    if job.state is JobState.SKIPPED:
        return "the job was skipped: reschedule the job that it depends on"
    return f"the job is {job.state}: only failed and killed jobs can be rescheduled"


_OF_REQUESTS = {
    "reschedule": "resubmit the request",
    "redo": "resubmit the request",
    PRIORITY: "change the priority of the request",
}


def _refuse_of_request(pool: Pool, tx: Transaction, verb: str, job: JobRow) -> str:
    """A failed job of a request is made again by its element: to reschedule it would process its events twice.

    Its priority is that of its request.
    """
    if verb not in _OF_REQUESTS:
        return ""
    request = pool.jobs.submissions.get(tx, job.submission).row.request
    return "" if request is None else f"the job works for request {request}: {_OF_REQUESTS[verb]}"


def _reschedule(moves: JobTransitions, job: JobRow, reason: str, _place: PilotRow | None) -> None:
    """Return the job to its queue at once, with its failure counters reset; or to its gate, if it has not passed it."""
    if job.state is JobState.DONE:
        attempts.withdraw_result(moves.tx.connection, job.id, job.finished_epoch)
    again = moves.move(job, "rescheduled", JobState.RESCHEDULED, reason)
    again = again._replace(queue=find_queue(moves, job), failures=0, own_failures=0)
    moves.parent_changed(again, returned=True)
    _let_wait(moves, again, "requeued")


def _let_wait(moves: JobTransitions, job: JobRow, kind: str) -> None:
    """Return a job to its queue, or to its gate if it has not passed it."""
    connection = moves.tx.connection
    gate = chains.gate_of_job(connection, job.submission, job.id)
    if gate is not None:
        block_again(moves, job, gate)
    elif parallel_limits.find(connection, job.submission) is None:
        moves.requeue(job, kind)
    else:
        moves.block(job, kind)
        parallel_limits.unsettle(connection, [job.submission])
        moves.pool.jobs.dependants_due()


_MAY_BE_HELD = frozenset({JobState.BLOCKED, JobState.WAITING, JobState.RESCHEDULED})


def _refuse_hold(job: JobRow) -> str:
    if job.state in _MAY_BE_HELD:
        return ""
    if job.state in FINAL or job.state is JobState.HELD:
        return f"the job is already {job.state}"
    return f"the job is {job.state}: only jobs that have not started can be held"


def _hold(moves: JobTransitions, job: JobRow, reason: str, _place: PilotRow | None) -> None:
    holder = moves.events.actor.removeprefix("user:")
    moves.hold_back(job, f"held by {holder}: {reason}" if reason else f"held by {holder}")


def _refuse_release(job: JobRow) -> str:
    return "" if job.state is JobState.HELD else f"the job is {job.state}: it is not held"


def _release(moves: JobTransitions, job: JobRow, _reason: str, _place: PilotRow | None) -> None:
    """Let a held job go on. A queue orders its jobs by priority and id, so the job has its former place."""
    _let_wait(moves, job._replace(queue=find_queue(moves, job)), "hold-over")


def _refuse_priority(job: JobRow) -> str:
    return f"the job is already {job.state}" if job.state in FINAL else ""


def _set_priority(priority: int, moves: JobTransitions, job: JobRow, reason: str, _: PilotRow | None) -> None:
    """Let the job wait with another UserPriority, now or when it waits again."""
    if job.user_priority == priority:
        return
    moves.rows[job.id] = job
    if job.state is JobState.WAITING:
        change = f"priority {job.user_priority} to {priority}"
        moves.wait_elsewhere(job, job.queue, priority, f"{change}: {reason}" if reason else change)
    else:
        moves.return_elsewhere(job, job.queue, priority)


def _refuse_delete(job: JobRow) -> str:
    if JOB_STATES.allows(job.state, JobState.DELETED):
        return ""
    return (
        "the job is already Deleted"
        if job.state is JobState.DELETED
        else f"the job is {job.state}: kill it first"
    )


def _delete(moves: JobTransitions, job: JobRow, reason: str, place: PilotRow | None) -> None:
    moves.end(job, "deleted", JobState.DELETED, reason or "deleted", place)


VERBS: dict[str, Verb] = {
    "kill": _kill,
    "reschedule": _reschedule,
    "redo": _reschedule,
    "delete": _delete,
    "hold": _hold,
    "release": _release,
}
REFUSALS: dict[str, Callable[[JobRow], str]] = {
    "kill": _refuse_kill,
    "reschedule": _refuse_reschedule,
    "redo": _refuse_redo,
    "delete": _refuse_delete,
    "hold": _refuse_hold,
    "release": _refuse_release,
    PRIORITY: _refuse_priority,
}


def check_verb(verb: str, priority: int | None) -> None:
    """Raises InvalidInput for an unknown verb, and for a priority that the verb lacks or does not take."""
    if verb not in REFUSALS:
        raise InvalidInput(f"unknown action {verb}", hint=f"use one of: {', '.join(REFUSALS)}")
    if (verb == PRIORITY) is (priority is None):
        problem = "needs a" if verb == PRIORITY else "takes no"
        raise InvalidInput(f"the action {verb} {problem} priority", field="priority")
