"""Limits on the jobs of a submission that run at once.

Only as many jobs as the limit allows are in the task queue or at pilots. The others are Blocked, and take the places of
jobs that end. The places are counted in the store, so the limit holds for all servers together. Since all jobs of a
submission fit the same pilots, it does not matter which of them wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.states import CONFIRMED, JobState
from pilotage.core.plurals import plural
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.services.submission.gates import EVERYBODY
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import chains, chunks, job_counts, jobs, listing, parallel_limits, submissions
from pilotage.store.tables.selections import JobSelection
from pilotage.store.writer.transaction import Transaction

ACTOR = "server"
AT_ONCE = 100
"""Jobs that a transaction moves."""
WITH_PLACE = CONFIRMED | {JobState.WAITING, JobState.MATCHED, JobState.RESCHEDULED}
"""Jobs in these states have one of the places of their submission."""


def move_jobs(pool: Pool, tx: Transaction, limits: Sequence[int], now: float) -> int:
    """Let jobs of these submissions take free places, or leave places that the limit forbids.

    Returns the number of submissions.
    """
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, ACTOR))
    for submission in limits:
        limit = parallel_limits.find(tx.connection, submission, lock=True)
        if limit is None or limit.settled:
            continue
        gate = chains.GateKey(SubmissionId(submission), chains.WHOLE)
        closed = bool(chains.gates(tx.connection, {gate}, lock=""))
        # The gate's last jobs unsettle the limit again.
        if closed or _move(moves, submission, limit.running):
            parallel_limits.settle(tx.connection, submission)
    moves.write()
    return len(limits)


def _move(moves: JobTransitions, submission: int, running: int) -> bool:
    """Whether nothing is left to move."""
    used = places_used(moves.tx.connection, submission)
    room = running - used if running else AT_ONCE
    asked = min(abs(room), AT_ONCE)
    if not asked:
        return True
    moved = (_give_places if room > 0 else _take_places)(moves, submission, asked)
    return moved is None or (bool(running) and moved == abs(room))


def _give_places(moves: JobTransitions, submission: int, most: int) -> int | None:
    """Let Blocked jobs wait for a pilot. Returns their number; None: no other job is Blocked."""
    connection = moves.tx.connection
    blocked = JobSelection(submission=submission, states=[JobState.BLOCKED])
    ids = [JobId(job) for job in listing.job_ids(connection, blocked, EVERYBODY, 0, most)]
    rows = [job for job in jobs.by_ids(connection, ids).values() if job.state is JobState.BLOCKED]
    # The end of a marked job is told in its transaction.
    chains.mark_jobs(connection, [job.id for job in rows])
    for job in rows:
        moves.requeue(job, "unblocked")
    return len(rows) if len(ids) == most else None


def _take_places(moves: JobTransitions, submission: int, most: int) -> int | None:
    """Let the last waiting jobs be Blocked again. Returns their number; None: no other job waits."""
    connection = moves.tx.connection
    waiting = JobSelection(submission=submission, states=[JobState.WAITING])
    page = listing.job_rows(connection, waiting, EVERYBODY, 0, most, newest=True)
    ids = sorted(JobId(row.id) for row in page)
    rows = [job for job in jobs.by_ids(connection, ids).values() if job.state is JobState.WAITING]
    for job in rows:
        moves.block(job, "blocked")
    return len(rows) if len(ids) == most else None


def places_used(connection: Connection, submission: int) -> int:
    """The number of jobs of a submission that wait for a pilot, or run."""
    states = job_counts.by_state(connection, JobSelection(submission=submission), EVERYBODY)
    return sum(states.get(state, 0) for state in WITH_PLACE)


def set_limit(pool: Pool, tx: Transaction, submission: SubmissionId, running: int) -> None:
    """Change the number of jobs of a submission that may run at once; 0: all. The caller may change it."""
    row = submissions.by_id(tx.connection, submission)
    if row is None:
        raise NotFound(f"there is no submission {submission}")
    if row.state != submissions.CLOSED or chunks.first_incomplete(tx.connection, submission):
        raise Conflict(
            f"the jobs of submission {submission} are still being created", hint="try again in a moment"
        )
    if pool.jobs.submissions.get(tx, submission).description.after_each:
        raise InvalidInput(
            f"submission {submission} runs job by job after another one, and cannot have a limit"
        )
    if parallel_limits.find(tx.connection, submission) is None:
        # Its jobs that wait or run are marked in slices, as parents are.
        chains.add_parent_submissions(tx.connection, [submission])
    parallel_limits.save(tx.connection, submission, running)
    pool.jobs.dependants_due()


def explain(connection: Connection, submission: int) -> str:
    """Why a Blocked job without a gate does not wait for a pilot; "": its submission has no limit."""
    limit = parallel_limits.find(connection, submission)
    if limit is None or not limit.running:
        return ""
    used = places_used(connection, submission)
    return f"{used:,} of {plural(limit.running, 'job')} of submission {submission} run or wait for a pilot"
