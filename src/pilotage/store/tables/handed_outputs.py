"""Outputs of jobs that are inputs of other jobs. The retention keeps them until the jobs that read them have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.ids import JobId, SubmissionId
from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import ONE_SERVER, overwrites
from pilotage.store.engine.rows import columns


class HandedOutput(NamedTuple):
    submission: SubmissionId
    """Its jobs read the output."""
    number: int
    job: JobId
    """It writes the output."""
    name: str


_WAS_SKIPPED = (
    "EXISTS (SELECT 1 FROM gates g WHERE g.submission_id = handed_outputs.submission_id AND g.job_id = 0"
    " AND g.outlook = 'never')"
)
"""Readers behind a gate that nobody can pass. They are revived if the writer is tried again, so their rows stay."""

_COLUMNS = columns(HandedOutput, submission="submission_id", job="job_id")
add = RowWriter[HandedOutput](insert("handed_outputs", _COLUMNS.split(", ")))


def of_submissions(connection: Connection, submissions: Sequence[int]) -> list[HandedOutput]:
    """The outputs that jobs of these submissions read, in the order of their inputs."""
    them, value = in_list(connection, "submission_id", submissions)
    sql = f"SELECT {_COLUMNS} FROM handed_outputs WHERE {them} ORDER BY submission_id, number"
    return [HandedOutput(*row) for row in connection.execute(sql, (value,))]


def hold(connection: Connection, jobs: Sequence[JobId]) -> None:
    """Let nobody delete the outputs of these jobs before the transaction ends, which stores their reader."""
    _lock_results(connection, jobs, "KEY SHARE")


def _lock_results(connection: Connection, jobs: Sequence[int], how: str) -> None:
    them, value = in_list(connection, "job_id", jobs)
    sql = f"SELECT job_id FROM results WHERE {them} ORDER BY job_id, epoch"
    connection.execute(sql + lock_clause(connection, how), (value,)).fetchall()


@overwrites("the results are locked before, and readers share the lock")
def keep(connection: Connection, jobs: Sequence[JobId]) -> set[JobId]:
    """The jobs among these whose outputs others read. The outputs are deleted when `end_readers` returns them.

    A submission of another server may be storing a reader: the locks are taken before the look for readers.
    """
    _lock_results(connection, jobs, "UPDATE")
    them, value = in_list(connection, "job_id", jobs)
    sql = f"SELECT job_id FROM handed_outputs WHERE {them} AND NOT {_WAS_SKIPPED}"
    kept = {row[0] for row in connection.execute(sql, (value,))}
    if kept:
        connection.execute(f"UPDATE handed_outputs SET expired = 1 WHERE {them}", (value,))
    return kept


def ended_readers(connection: Connection) -> list[int]:
    """Submissions that read outputs, and whose jobs have all ended. Skipped ones only if they keep expired outputs."""
    sql = (
        "SELECT DISTINCT handed_outputs.submission_id FROM handed_outputs"
        " JOIN submissions s ON s.id = handed_outputs.submission_id"
        f" WHERE s.state = 'closed' AND (expired = 1 OR NOT {_WAS_SKIPPED})"
        " AND NOT EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id"
        " AND (c.made < c.count OR EXISTS (SELECT 1 FROM jobs j WHERE j.owner = s.owner AND j.final_state = ''"
        " AND j.id >= c.first_job AND j.id < c.first_job + c.made AND j.submission_id = s.id)))"
    )
    return [row[0] for row in connection.execute(sql)]


@overwrites(ONE_SERVER)
def end_readers(connection: Connection, submissions: Sequence[int]) -> list[tuple[JobId, int]]:
    """Forget the outputs that these submissions read.

    Returns the archived jobs whose outputs can be deleted now, with their epochs.
    """
    them, value = in_list(connection, "submission_id", submissions)
    sql = f"SELECT DISTINCT job_id FROM handed_outputs WHERE expired = 1 AND {them}"
    expired = [row[0] for row in connection.execute(sql, (value,))]
    connection.execute(f"DELETE FROM handed_outputs WHERE {them} AND NOT {_WAS_SKIPPED}", (value,))
    connection.execute(f"UPDATE handed_outputs SET expired = 0 WHERE {them}", (value,))
    if not expired:
        return []
    _lock_results(connection, expired, "UPDATE")
    jobs, values = in_list(connection, "id", expired)
    sql = (
        f"SELECT id, epoch FROM history WHERE {jobs}"
        " AND NOT EXISTS (SELECT 1 FROM handed_outputs WHERE handed_outputs.job_id = history.id"
        f" AND NOT {_WAS_SKIPPED}) ORDER BY id"
    )
    return [(JobId(row[0]), row[1]) for row in connection.execute(sql, (values,))]


def delete_of_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Forget the outputs that deleted submissions read."""
    them, value = in_list(connection, "submission_id", submissions)
    connection.execute(f"DELETE FROM handed_outputs WHERE {them}", (value,))
