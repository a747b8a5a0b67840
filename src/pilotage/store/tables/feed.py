"""Reads the committed changes of jobs, submissions and requests in the order of their commits.

The sources are the event logs, whose rows are written with the changes. On SQLite one writer gives the ids, so their
order is that of commits. On PostgreSQL several servers write: rows are ordered by their transactions, and read up to
the first transaction that may still be open (as in `store.cluster.changes`). So no row can appear later in a range
that was read.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilotage.store.cluster.changes import oldest_open_transaction
from pilotage.store.engine.connection import Connection, in_list

MAX_ID = 2**63 - 1
MAX_ENTRIES = 999_999_999
"""More than a row of a log has entries."""


class LogPosition(NamedTuple):
    """A row of an event log, and everything before it in the order of commits."""

    xid: int
    """The transaction; 0 on SQLite."""
    id: int


class FeedRow(NamedTuple):
    """A change of one job, one submission or one request."""

    log: LogPosition
    entry: int
    """Its place within the row of the log, from 1."""
    at: float
    kind: str
    """job, submission or request."""
    id: int
    submission: int
    """The submission of a job; its first job for a submission; 0 for a request."""
    state: str
    epoch: int
    exit_code: int | None
    """Known of a job that is in this state now."""
    jobs: int
    """New jobs of a submission; else 1."""
    owner: str
    group: str

    @property
    def concerned_submission(self) -> int:
        """The new submission, or that of the job; 0 for a request."""
        return self.id if self.kind == "submission" else self.submission


class LogRow(NamedTuple):
    """A row of `events` or `request_events`."""

    log: LogPosition
    at: float
    kind: str
    old: str
    new: str
    detail: str
    jobs: str


_EVENTS = ("events", "xid, id, at, kind, old, new, detail, jobs")
_REQUEST_EVENTS = ("request_events", "xid, id, at, kind, old, new, detail, '[[' || request_id || ',0]]'")


def newest(connection: Connection, *, of_requests: bool = False) -> LogPosition:
    """The position behind all changes that are committed. Changes of open transactions follow it."""
    table = _REQUEST_EVENTS[0] if of_requests else _EVENTS[0]
    if connection.dialect != "sqlite":
        return LogPosition(oldest_open_transaction(connection) - 1, MAX_ID)
    return LogPosition(0, int(connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]))


def read_log(
    connection: Connection, after: LogPosition, most: int, *, of_requests: bool = False
) -> list[LogRow]:
    """At most `most` rows from `after` on, that row included, in the order of commits."""
    table, columns = _REQUEST_EVENTS if of_requests else _EVENTS
    sql = f"SELECT {columns} FROM {table} WHERE id >= ? ORDER BY id LIMIT ?"
    values: tuple[int, ...] = (after.id, most)
    if connection.dialect != "sqlite":
        sql = (
            f"SELECT {columns} FROM {table} WHERE (xid, id) >= (?, ?)"
            " AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY xid, id LIMIT ?"
        )
        values = (*after, most)
    return [LogRow(LogPosition(*row[:2]), *row[2:]) for row in connection.execute(sql, values)]


class JobFact(NamedTuple):
    """The part of a job's row that its changes show."""

    submission: int
    state: str
    epoch: int
    exit_code: int | None


def job_facts(connection: Connection, jobs: list[int]) -> dict[int, JobFact]:
    """The present facts of these jobs, also of archived ones, by id. Deleted ones are missing."""
    condition, value = in_list(connection, "id", jobs)
    columns = "id, submission_id, state, epoch, exit_code"
    sql = f"SELECT {columns} FROM jobs WHERE {condition} UNION ALL SELECT {columns} FROM history WHERE {condition}"
    return {row[0]: JobFact(*row[1:]) for row in connection.execute(sql, (value, value))}


def owners_of(connection: Connection, table: str, ids: list[int]) -> dict[int, tuple[str, str]]:
    """Owner and group by id, of rows of `submissions` or `requests`."""
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT id, owner, grp FROM {table} WHERE {condition}"
    return {row[0]: (row[1], row[2]) for row in connection.execute(sql, (value,))}


def entries_of(row: LogRow) -> list[tuple[int, int]]:
    """(job, epoch) of each entry; a new submission has one entry (first job, number of jobs)."""
    entries = msgspec.json.decode(row.jobs)
    if row.kind == "submitted":
        return [(entries[0], entries[1])] if entries else []
    return [(entry[0], entry[1]) for entry in entries]
