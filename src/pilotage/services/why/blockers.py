"""Why a Blocked job waits: the job that it depends on, and why that job has not ended."""

from __future__ import annotations

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.dependencies import Outlook, Parent, RunAfter
from pilotage.core.jobs.states import JobState
from pilotage.services.submission.gates import EVERYBODY
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import chains, listing, parallel_limits
from pilotage.store.tables.chains import ConditionRow
from pilotage.store.tables.selections import JobSelection
from pilotage.wire import why as wire
from pilotage.wire.jobs import JobSummary

MAX_BLOCKERS = 20
"""Open conditions of one answer."""
MAX_STEPS = 1000
"""Blocked jobs that are followed to a job that is not Blocked."""

_WORDS = {
    RunAfter.ENDED: "has ended",
    RunAfter.SUCCEEDED: "is Done",
    RunAfter.FAILED: "has ended and is not Done",
}


def blockers(connection: Connection, job: JobSummary) -> list[wire.Blocker]:
    """The open conditions of a Blocked job, each with a job that is to end first."""
    rows = []
    for row in _open_conditions(connection, job)[:MAX_BLOCKERS]:
        parent = Parent(row.parent_job, row.parent_submission)
        blocker = _first_unfinished(connection, parent)
        state = blocker.state if blocker else ""
        rows.append(wire.Blocker(row.condition, str(parent), blocker.id if blocker else 0, state))
    return rows


def root_blocker(connection: Connection, job: JobSummary) -> JobSummary | None:
    """The first job on the way up that is not Blocked; None: the conditions of a job are being decided."""
    for _ in range(MAX_STEPS):
        rows = _open_conditions(connection, job)
        parent = (
            _first_unfinished(connection, Parent(rows[0].parent_job, rows[0].parent_submission))
            if rows
            else None
        )
        if not rows and parallel_limits.find(connection, job.submission) is not None:
            # Its own submission lets no more jobs run.
            return job
        if parent is None or parent.state != JobState.BLOCKED:
            return parent
        job = parent
    return job


def explain(job: JobSummary, rows: list[wire.Blocker], root: wire.Why | None) -> wire.Why:
    """The answer for a Blocked job. `root`: the answer for the first job on the way up that is not Blocked."""
    if root is not None and root.job == job.id:
        return root
    if not rows or root is None:
        summary = (
            f"job {job.id} is Blocked; the jobs that it depends on have ended, and it moves on in a moment"
        )
        return wire.Why(summary, job=job.id, state=job.state, queue=job.queue)
    first = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    summary = f"job {job.id} waits until {first.parent} {_WORDS[RunAfter(first.condition)]}{more}"
    if first.state == JobState.BLOCKED:
        summary += f"; job {first.job} is Blocked too, in the end by job {root.job}"
    return wire.Why(
        f"{summary}; {root.summary}",
        root.advice,
        job=job.id,
        state=job.state,
        queue=job.queue,
        blockers=rows,
    )


def _open_conditions(connection: Connection, job: JobSummary) -> list[ConditionRow]:
    gate = chains.gate_of_job(connection, SubmissionId(job.submission), JobId(job.id), lock="")
    if gate is None:
        return []
    return [row for row in chains.conditions_of(connection, {gate.key}) if row.outlook == Outlook.OPEN]


def _first_unfinished(connection: Connection, parent: Parent) -> JobSummary | None:
    ids = [parent.job] if parent.job else chains.unfinished(connection, parent.submission, 0, 1)
    rows = listing.jobs(connection, JobSelection(ids=ids), EVERYBODY, 0, 1) if ids else []
    return JobSummary(*rows[0]) if rows else None
