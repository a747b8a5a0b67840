"""Limits on the jobs of a submission that run at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pilotage.core.ids import SubmissionId
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import hint, overwrites


class ParallelLimit(NamedTuple):
    running: int
    """0: no limit any more."""
    settled: int
    """0: Blocked jobs may have to move."""


def save(connection: Connection, submission: SubmissionId, running: int) -> None:
    """Set the limit of a submission. Its jobs have to move."""
    sql = (
        "INSERT INTO parallel_limits (submission_id, running) VALUES (?, ?)"
        " ON CONFLICT (submission_id) DO UPDATE SET running = excluded.running, settled = 0"
    )
    connection.execute(sql, (submission, running))


@hint("the row is locked before a job takes or leaves a place")
def find(connection: Connection, submission: int, *, lock: bool = False) -> ParallelLimit | None:
    """The limit of a submission; None: it never had one. `lock`: no other server moves its jobs meanwhile."""
    sql = "SELECT running, settled FROM parallel_limits WHERE submission_id = ?"
    row = connection.execute(
        sql + (lock_clause(connection, "UPDATE") if lock else ""), (submission,)
    ).fetchone()
    return None if row is None else ParallelLimit(*row)


@hint("a new limit begins unsettled")
def limited(connection: Connection, submissions: Iterable[int]) -> set[int]:
    """The given submissions that have a limit, or had one."""
    them, value = in_list(connection, "submission_id", sorted(submissions))
    sql = f"SELECT submission_id FROM parallel_limits WHERE {them}"
    return {row[0] for row in connection.execute(sql, (value,))}


@overwrites("the next look at the limit counts again")
def unsettle(connection: Connection, submissions: Iterable[int]) -> None:
    """Let the jobs of these submissions move, if they have a limit."""
    # All servers lock limits in the same order.
    for submission in sorted(limited(connection, submissions)):
        connection.execute("UPDATE parallel_limits SET settled = 0 WHERE submission_id = ?", (submission,))


def settle(connection: Connection, submission: int) -> None:
    """No job of this submission has to move until something changes."""
    connection.execute("UPDATE parallel_limits SET settled = 1 WHERE submission_id = ?", (submission,))


@hint("each limit is locked and looked at again")
def unsettled(connection: Connection, most: int) -> list[int]:
    """Submissions with jobs that may have to move, at most `most`."""
    sql = "SELECT submission_id FROM parallel_limits WHERE settled = 0 ORDER BY submission_id LIMIT ?"
    return [row[0] for row in connection.execute(sql, (most,))]


def delete_of_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Delete the limits of deleted submissions."""
    them, value = in_list(connection, "submission_id", submissions)
    connection.execute(f"DELETE FROM parallel_limits WHERE {them}", (value,))
