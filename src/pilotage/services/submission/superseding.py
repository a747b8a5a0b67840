"""Marks failed jobs as superseded, in the transaction that creates the jobs which run them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import JobState
from pilotage.services.pool.state import Pool
from pilotage.store.tables import history, jobs, listing
from pilotage.store.tables.jobs import JobRow, StateChange
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction

_NOT_DONE = (JobState.FAILED, JobState.KILLED, JobState.SKIPPED)


def supersede(
    pool: Pool, tx: Transaction, submission: SubmissionRow, again: Sequence[int], now: float
) -> None:
    """Move the jobs `again` to Superseded: `submission` runs them again.

    Only the owner's failed, killed, skipped and incomplete jobs move. Other jobs stay, also unknown ones and jobs of
    requests.
    """
    replaced = _replaceable(pool, tx, submission.owner, again)
    history.restore(tx.connection, replaced)
    events = pool.event_batch(now, f"user:{submission.owner}")
    reason = f"submission {submission.id} runs it again"
    changes: list[StateChange] = []
    for job in _existing(tx, replaced):
        # Another server may have moved the job since it was read.
        if job.state in (JobState.DONE, *_NOT_DONE):
            of_job = (job.id, job.submission, job.epoch, job.last_event)
            event = events.add("superseded", job.state, JobState.SUPERSEDED, *of_job, reason)
            changes.append(StateChange(JobState.SUPERSEDED, reason, event, job.id))
    events.write(tx.connection)
    if changes:
        jobs.save_superseded(tx.connection, changes)


def _replaceable(pool: Pool, tx: Transaction, owner: str, ids: Sequence[int]) -> list[int]:
    rows = [job for job in _existing(tx, ids) if _is_of_user(pool, tx, job, owner)]
    done = [job.id for job in rows if job.state is JobState.DONE]
    incomplete = set(_with_missing_outputs(tx, done))
    return [job.id for job in rows if job.state in _NOT_DONE or job.id in incomplete]


def _existing(tx: Transaction, ids: Sequence[int]) -> Iterable[JobRow]:
    return jobs.by_ids(tx.connection, ids).values() if ids else ()


def _is_of_user(pool: Pool, tx: Transaction, job: JobRow, owner: str) -> bool:
    """Whether the job is the owner's own, and not one that works for a request."""
    row = pool.jobs.submissions.get(tx, job.submission).row
    return row.owner == owner and row.request is None


def _with_missing_outputs(tx: Transaction, done: Sequence[JobId]) -> list[int]:
    if not done:
        return []
    selection = JobSelection(ids=done, states=["Done"], outputs_incomplete=True)
    return listing.job_ids(tx.connection, selection, Viewer("", everything=True), 0, len(done))
