"""Limits on the jobs of a submission that run at once.

Only as many jobs as the limit allows are in the task queue or at pilots. The others are Blocked, and take the places of
jobs that end. The places are counted in the store, so the limit holds for all servers together. Since all jobs of a
submission fit the same pilots, it does not matter which of them wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.states import CONFIRMED, JobState
from pilotage.core.plurals import plural
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.services.submission.gates import EVERYBODY
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import chains, chunks, job_counts, listing, parallel_limits, submissions
from pilotage.store.tables.selections import JobSelection
from pilotage.store.writer.transaction import Transaction

ACTOR = "server"
AT_ONCE = 100
"""Jobs that a transaction moves."""
WITH_PLACE = CONFIRMED | {JobState.WAITING, JobState.MATCHED, JobState.RESCHEDULED}
"""Jobs in these states have one of the places of their submission."""


def move_jobs(pool: Pool, tx: Transaction, limits: Sequence[int], now: float) -> int:
    """Let jobs of these submissions take free places, or leave places that the limit forbids.

    Returns the number of submissions. A limit whose jobs change meanwhile stays for the next call.
    """
    connection = tx.connection
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, ACTOR))
    # Jobs are locked before limits, as by people who let a job wait again.
    moves.load([job for part in _moving(tx, limits, lock=False) for job in part.jobs])
    for part in _moving(tx, limits, lock=True):
        locked = [moves.rows[job] for job in part.jobs if job in moves.rows]
        rows = [job for job in locked if job.state is part.leave]
        if part.leave is JobState.BLOCKED:
            # The end of a marked job is told in its transaction.
            chains.mark_jobs(connection, [job.id for job in rows])
        for job in rows:
            if part.leave is JobState.BLOCKED:
                moves.requeue(job, "unblocked")
            else:
                moves.block(job, "blocked")
        if part.is_last and len(rows) == len(part.jobs):
            parallel_limits.settle(connection, part.submission)
    moves.write()
    return len(limits)


class _NextJobs(NamedTuple):
    """The next jobs of a submission that have to move."""

    submission: int
    leave: JobState
    """The state that they leave: Blocked jobs take places, and waiting jobs leave theirs."""
    jobs: Sequence[JobId]
    is_last: bool
    """Nothing is left to move after them."""


def _moving(tx: Transaction, submissions: Sequence[int], *, lock: bool) -> Iterator[_NextJobs]:
    """The jobs that have to move now. `lock`: no other server moves jobs of these limits meanwhile."""
    for submission in sorted(submissions):
        limit = parallel_limits.find(tx.connection, submission, lock=lock)
        if limit is None or limit.settled:
            continue
        gate = chains.GateKey(SubmissionId(submission), chains.WHOLE)
        if chains.gates(tx.connection, {gate}, lock=""):
            # The gate's last jobs unsettle the limit again.
            yield _NextJobs(submission, JobState.BLOCKED, (), is_last=True)
        else:
            yield _next_jobs(tx.connection, submission, limit.running)


def _next_jobs(connection: Connection, submission: int, running: int) -> _NextJobs:
    room = running - places_used(connection, submission) if running else AT_ONCE
    asked = min(abs(room), AT_ONCE)
    leave = JobState.BLOCKED if room > 0 else JobState.WAITING
    selection = JobSelection(submission=submission, states=[leave])
    if not asked:
        ids = []
    elif room > 0:
        ids = [JobId(job) for job in listing.job_ids(connection, selection, EVERYBODY, 0, asked)]
    else:
        # The last waiting jobs are Blocked again.
        page = listing.job_rows(connection, selection, EVERYBODY, 0, asked, newest=True)
        ids = sorted(JobId(row.id) for row in page)
    is_last = len(ids) < asked or (bool(running) and asked == abs(room))
    return _NextJobs(submission, leave, ids, is_last=is_last)


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
