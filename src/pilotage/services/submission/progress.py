"""How far a submission has come: the rate of its ends, the time left, and its failures by their reason."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.ids import JobId
from pilotage.core.jobs.alike_reasons import kind_of_reason
from pilotage.core.jobs.states import FINAL, RUNS, JobState
from pilotage.services.submission.gates import EVERYBODY
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import attempts, listing
from pilotage.store.tables.listing import JobSummaryRow
from pilotage.store.tables.selections import JobSelection
from pilotage.store.tables.submission_listing import SubmissionFigures
from pilotage.wire.submission_progress import FailureGroup, SubmissionProgress, SubmissionSummary

MOST_READ = 200
"""The most ended jobs that are read."""
FEWEST_ENDS = 3
"""Ends from which a rate is computed."""
MOST_GROUPS = 10
MOST_RUNNING = 20
LINE_LENGTH = 200
_RAN = (JobState.DONE, JobState.FAILED)


def progress_of(connection: Connection, figures: SubmissionFigures, now: float) -> SubmissionProgress:
    """The progress of a submission. It reads some of its jobs only."""
    ended = sum(number for state, number in figures.states.items() if state in FINAL)
    ran = _newest(connection, figures.id, _RAN, MOST_READ)
    rate = _rate(ran, now)
    left = figures.jobs - ended
    failed = _newest(connection, figures.id, (JobState.FAILED,), MOST_READ)
    running = _newest(connection, figures.id, tuple(RUNS), MOST_RUNNING)
    return SubmissionProgress(
        SubmissionSummary(*figures),
        ended=ended,
        rate=None if rate is None else rate * 3600,
        time_left=left / rate if left and rate else None,
        running=sorted(row.id for row in running),
        failures=_groups(connection, failed),
        failures_read=len(failed),
        incomplete=[row.id for row in ran if row.state == JobState.DONE and row.outputs_incomplete],
    )


def _newest(connection: Connection, submission: int, states: Sequence[str], most: int) -> list[JobSummaryRow]:
    selection = JobSelection(submission=submission, states=states)
    return list(listing.job_rows(connection, selection, EVERYBODY, 0, most, newest=True))


def _rate(rows: Sequence[JobSummaryRow], now: float) -> float | None:
    """Ends per second since the first of the last ends. A submission that stands still gets slower."""
    ends = [row.ended for row in rows if row.ended is not None]
    if len(ends) < FEWEST_ENDS or now <= min(ends):
        return None
    return (len(ends) - 1) / (now - min(ends))


def _groups(connection: Connection, failed: Sequence[JobSummaryRow]) -> list[FailureGroup]:
    """Failed jobs by their reason, the most frequent one first."""
    by_kind: dict[str, list[JobSummaryRow]] = {}
    for row in failed:
        by_kind.setdefault(kind_of_reason(row.reason), []).append(row)
    groups = sorted(by_kind.values(), key=lambda rows: -len(rows))[:MOST_GROUPS]
    lines = _last_lines(connection, [rows[0].id for rows in groups])
    return [FailureGroup(rows[0].reason, len(rows), rows[0].id, lines.get(rows[0].id, "")) for rows in groups]


def _last_lines(connection: Connection, jobs: Sequence[int]) -> dict[int, str]:
    """The last line of the stored standard error of each job. A large one is in a file, and is not read."""
    epochs = {
        JobId(id_): facts.finished_epoch for id_, facts in listing.facts_of_jobs(connection, jobs).items()
    }
    results = attempts.results_of(connection, epochs) if epochs else {}
    return {job: _last_line(result.stderr or b"") for job, result in results.items()}


def _last_line(data: bytes) -> str:
    lines = data.rstrip()[-4 * LINE_LENGTH :].decode("utf-8", "replace").splitlines()
    return lines[-1][:LINE_LENGTH] if lines else ""
