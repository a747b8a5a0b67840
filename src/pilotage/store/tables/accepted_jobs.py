"""The jobs of an owner that count for a limit, whether they are created yet or not."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.jobs.states import JobState
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import decision
from pilotage.store.tables import job_counts

_ACCEPTED = (
    "SELECT coalesce(sum(jobs), 0) FROM ("
    f"SELECT c.jobs FROM owner_counts c WHERE c.month = {job_counts.HOT} AND c.owner = ? AND c.state IN ({{states}})"
    " UNION ALL SELECT c.jobs FROM {changes} c JOIN submissions s ON s.id = c.submission_id"
    f" WHERE c.month = {job_counts.HOT} AND c.state IN ({{states}}) AND s.owner = ?"
    " UNION ALL SELECT c.count - c.made FROM submission_chunks c WHERE c.made < c.count"
    " AND (SELECT s.owner FROM submissions s WHERE s.id = c.submission_id) = ?"
    " UNION ALL SELECT s.expected - s.count FROM submissions s"
    " WHERE s.state <> 'closed' AND s.state = 'staged' AND s.owner || '' = ?) AS parts"
)
"""The parts: created jobs, changes of their number, jobs of stored rows, and rows that are not stored yet.

The conditions on owners use no index: an owner may have any number of submissions, of which few are not complete.
SQLite uses the index of submissions that are not closed only if the statement repeats its condition.
"""


@decision("one statement, under the lock of the owner's jobs")
def count(connection: Connection, owner: str, states: Sequence[JobState]) -> int:
    """The jobs of an owner in these states, and the accepted jobs that are not created yet.

    One statement: a job that another server creates meanwhile counts once.
    """
    named = ", ".join(f"'{state}'" for state in states)
    sql = _ACCEPTED.format(states=named, changes=job_counts.changes(connection))
    return int(connection.execute(sql, (owner,) * 4).fetchone()[0])
