"""Counts of the elements and jobs of requests, for lists and for the funnel of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import Connection, bounded_sum, in_list
from pilotage.store.engine.decisions import SHOWN, hint


class ElementCount(NamedTuple):
    step: int
    state: str
    number: int
    jobs: int
    events: int
    files: int
    complete: int
    """Percent of the jobs of each of these elements that have ended."""
    success: int
    """Percent of the jobs of each of these elements that are done."""


class JobCount(NamedTuple):
    step: int
    site: str
    state: str
    number: int
    events: int
    files: int


class PoolCount(NamedTuple):
    """Jobs in the pool."""

    step: int
    site: str
    state: str
    number: int


class ErrorCount(NamedTuple):
    """Jobs whose last try failed alike. `example` is the newest of these rows."""

    step: int
    exit_code: int | None
    failure: str
    number: int
    exhausted: int
    example: int


@hint(SHOWN)
def elements_by_request(connection: Connection, requests: Sequence[int]) -> list[tuple[int, str, int, int]]:
    """(request, state of elements, elements, jobs)."""
    condition, value = in_list(connection, "request_id", requests)
    sql = (
        f"SELECT request_id, state, count(*), {bounded_sum(connection, 'jobs')} FROM elements WHERE {condition}"
        " GROUP BY request_id, state"
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in connection.execute(sql, (value,))]


@hint(SHOWN)
def jobs_by_request(connection: Connection, requests: Sequence[int]) -> list[tuple[int, str, int]]:
    """(request, state of element jobs, jobs)."""
    condition, value = in_list(connection, "request_id", requests)
    sql = f"SELECT request_id, state, count(*) FROM element_jobs WHERE {condition} GROUP BY request_id, state"
    return [(row[0], row[1], int(row[2])) for row in connection.execute(sql, (value,))]


@hint(SHOWN)
def elements_of(connection: Connection, request: int) -> list[ElementCount]:
    jobs, events, files = (bounded_sum(connection, column) for column in ("jobs", "events", "files"))
    ended = "jobs_done + jobs_failed + jobs_canceled"
    # Until an element is split, its number of jobs is estimated.
    complete, success = (
        f"CASE WHEN {part} >= jobs THEN 100 ELSE 100 * ({part}) / jobs END" for part in (ended, "jobs_done")
    )
    sql = (
        f"SELECT step, state, count(*), {jobs}, {events}, {files}, {complete} AS complete,"
        f" {success} AS success FROM elements WHERE request_id = ?"
        " GROUP BY step, state, complete, success ORDER BY step, state, complete, success"
    )
    return [ElementCount(row[0], row[1], *map(int, row[2:])) for row in connection.execute(sql, (request,))]


@hint(SHOWN)
def jobs_of(connection: Connection, request: int) -> list[JobCount]:
    sql = (
        f"SELECT step, site, state, count(*), {bounded_sum(connection, 'events')}, {bounded_sum(connection, 'files')}"
        " FROM element_jobs WHERE request_id = ?"
        # In the order of the index.
        " GROUP BY state, step, site"
    )
    rows = connection.execute(sql, (request,))
    return sorted(JobCount(*row[:3], *map(int, row[3:])) for row in rows)


@hint(SHOWN)
def pool_jobs_of(connection: Connection, request: int) -> list[PoolCount]:
    """The released jobs by their state in the pool, and the site of their pilot if they have one."""
    sql = (
        "SELECT e.step, coalesce(p.site, e.site), j.state, count(*) FROM element_jobs e JOIN jobs j ON j.id = e.job_id"
        " LEFT JOIN pilots p ON p.id = j.pilot_id WHERE e.request_id = ? AND e.state = 'released' GROUP BY 1, 2, 3"
    )
    return [PoolCount(row[0], row[1], row[2], int(row[3])) for row in connection.execute(sql, (request,))]


@hint(SHOWN)
def errors_of(connection: Connection, request: int, most: int) -> list[ErrorCount]:
    """Failures of jobs that are not done, the most frequent first."""
    sql = (
        "SELECT step, exit_code, failure, count(*), sum(CASE WHEN state = 'exhausted' THEN 1 ELSE 0 END), max(id)"
        # The second condition is that of the index.
        " FROM element_jobs WHERE request_id = ? AND (failure <> '' OR state = 'exhausted')"
        " AND state NOT IN ('done', 'canceled')"
        " GROUP BY step, exit_code, failure ORDER BY 4 DESC, 6 DESC LIMIT ?"
    )
    return [ErrorCount(*row[:3], *map(int, row[3:])) for row in connection.execute(sql, (request, most))]


@hint(SHOWN)
def messages_of(connection: Connection, element_jobs: Sequence[int]) -> dict[int, tuple[int | None, str]]:
    """Element job → its last job in the pool, and the message of its last try."""
    condition, value = in_list(connection, "id", element_jobs)
    sql = f"SELECT id, job_id, message FROM element_jobs WHERE {condition}"
    return {row[0]: (row[1], row[2]) for row in connection.execute(sql, (value,))}


@hint(SHOWN)
def last_stderr(connection: Connection, job: int) -> bytes:
    """The standard error of the last attempt of a job; empty if it was too long for the database."""
    sql = "SELECT stderr FROM results WHERE job_id = ? ORDER BY epoch DESC LIMIT 1"
    row = connection.execute(sql, (job,)).fetchone()
    return b"" if row is None or row[0] is None else bytes(row[0])


@hint(SHOWN)
def done_since(connection: Connection, request: int, since: float) -> int:
    """The number of jobs that were done after `since`."""
    sql = "SELECT count(*) FROM element_jobs WHERE request_id = ? AND state = 'done' AND ended > ?"
    return int(connection.execute(sql, (request, since)).fetchone()[0])
