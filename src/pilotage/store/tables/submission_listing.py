"""Lists of submissions, with the number of their jobs in each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import MAX_INTEGER, Connection, in_list
from pilotage.store.engine.rows import columns
from pilotage.store.tables import job_counts
from pilotage.store.tables.selections import Viewer, WhereClause


class SubmissionFigures(NamedTuple):
    """One submission of a list. It has the fields of `wire.submission_progress.SubmissionSummary`."""

    id: int
    owner: str
    group: str
    name: str
    job_group: str
    submitted: float
    jobs: int
    states: dict[str, int]
    parallel: int


_FIELDS = columns(
    SubmissionFigures,
    "s.",
    group="s.grp",
    name="s.job_name",
    jobs="s.count",
    states="NULL",
    parallel="coalesce(l.running, 0)",
)


def page(
    connection: Connection, viewer: Viewer, *, owner: str | None = None, before: int = 0, limit: int = 100
) -> list[SubmissionFigures]:
    """Accepted submissions that the viewer may see, newest first, with ids below `before`; 0: from the newest."""
    where = WhereClause(["s.id < ?", "s.state <> 'staged'"], [before or MAX_INTEGER])
    if not viewer.everything:
        if viewer.shared_group:
            where.add("(s.owner = ? OR s.grp = ?)", viewer.owner, viewer.shared_group)
        else:
            where.add("s.owner = ?", viewer.owner)
    if owner is not None:
        where.add("s.owner = ?", owner)
    return _read(connection, where, limit)


def one(connection: Connection, viewer: Viewer, submission: int) -> SubmissionFigures | None:
    """A submission; None: it does not exist, or the viewer may not see it."""
    rows = _read(connection, WhereClause(["s.id = ?", "s.state <> 'staged'"], [submission]), 1)
    return next((row for row in rows if viewer.may_see(row.owner, row.group)), None)


def _read(connection: Connection, where: WhereClause, limit: int) -> list[SubmissionFigures]:
    sql = (
        f"SELECT {_FIELDS} FROM submissions s LEFT JOIN parallel_limits l ON l.submission_id = s.id"
        f" WHERE {where.sql} ORDER BY s.id DESC LIMIT ?"
    )
    rows = [SubmissionFigures(*row) for row in connection.execute(sql, (*where.values, limit))]
    states = _states(connection, [row.id for row in rows])
    return [row._replace(states=states[row.id]) for row in rows]


def _states(connection: Connection, submissions: Sequence[int]) -> dict[int, dict[str, int]]:
    """The number of jobs of each submission by state."""
    them, value = in_list(connection, "c.submission_id", submissions)
    parts = (
        f"SELECT c.submission_id, c.state, c.jobs FROM {source} c WHERE {them}"
        for source in ("submission_counts", job_counts.changes(connection))
    )
    sql = (
        f"SELECT submission_id, state, sum(jobs) FROM ({' UNION ALL '.join(parts)}) AS each_part"
        " GROUP BY submission_id, state"
    )
    states_of: dict[int, dict[str, int]] = {submission: {} for submission in submissions}
    for submission, state, number in connection.execute(sql, (value, value)):
        if number:
            states_of[submission][state] = int(number)
    return states_of
