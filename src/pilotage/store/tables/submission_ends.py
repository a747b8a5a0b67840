"""The ends of all jobs of a submission, on which conditions and mails depend."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.jobs.states import FINAL, JobState
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import decision

_UNFINISHED = (
    "SELECT 1 FROM submission_chunks c JOIN submissions s ON s.id = c.submission_id WHERE c.submission_id = ?"
    " AND (c.made < c.count OR EXISTS (SELECT 1 FROM jobs j WHERE j.owner = s.owner AND j.final_state = ''"
    " AND j.id >= c.first_job AND j.id < c.first_job + c.made AND j.submission_id = s.id)) LIMIT 1"
)


def has_unfinished(connection: Connection, submission: int) -> bool:
    """Whether a job of the submission has not ended, or is not created yet."""
    return connection.execute(_UNFINISHED, (submission,)).fetchone() is not None


_NOT_DONE = sorted(str(state) for state in FINAL if state is not JobState.DONE)


class SubmissionEnds(NamedTuple):
    """The facts that decide about conditions on a submission."""

    unfinished: bool
    """Whether a job has not ended, or is not created yet."""
    not_done: tuple[int, JobState, int | None] | None
    """A job that has ended and is not Done: its id, state and exit code."""


@decision("one statement over all facts that decide")
def ends_of_submission(connection: Connection, submission: int) -> SubmissionEnds:
    """How the jobs of the submission have ended.

    It is one statement: with two, a failed job that waits again between them would be neither unfinished nor failed.
    """
    tables = (("jobs", "final_state"), ("history", "state"))
    parts = [
        f"SELECT * FROM (SELECT j.id, j.state, j.exit_code FROM submissions s JOIN submission_chunks c"
        f" ON c.submission_id = s.id JOIN {table} j ON j.owner = s.owner AND j.{column} = ? AND j.id >= c.first_job"
        f" AND j.id < c.first_job + c.made AND j.submission_id = s.id WHERE s.id = ? LIMIT 1) AS {table}_{place}"
        for table, column in tables
        for place in range(len(_NOT_DONE))
    ]
    values = [value for _ in tables for state in _NOT_DONE for value in (state, submission)]
    not_done = f"SELECT id, state, exit_code FROM ({' UNION ALL '.join(parts)}) AS ended ORDER BY id LIMIT 1"
    sql = (
        f"SELECT u.unfinished, n.id, n.state, n.exit_code FROM (SELECT EXISTS ({_UNFINISHED}) AS unfinished) AS u"
        f" LEFT JOIN ({not_done}) AS n ON 1 = 1"
    )
    unfinished, job, state, exit_code = connection.execute(sql, (submission, *values)).fetchone()
    return SubmissionEnds(bool(unfinished), None if job is None else (job, JobState(state), exit_code))
