"""The elements and jobs of a request that an abort, a force-complete or new lists of sites concern, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.bulk_statements import RowWriter, update
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import guarded, overwrites
from pilotage.store.engine.rows import columns


def propagating(connection: Connection) -> list[int]:
    """Requests with a change that is not carried out everywhere yet."""
    return [row[0] for row in connection.execute("SELECT id FROM requests WHERE propagating = 1 ORDER BY id")]


@guarded("version")
def settle(connection: Connection, request: int, version: int) -> bool:
    """Store that a change is carried out everywhere. False: the request has changed again since `version`."""
    sql = "UPDATE requests SET propagating = 0 WHERE id = ? AND version = ?"
    return connection.execute(sql, (request, version)).rowcount == 1


@overwrites("the request has ended before, so that no intake changes its steps")
def close_steps(connection: Connection, request: int, steps: Sequence[int]) -> None:
    """Store that these steps get no further elements."""
    condition, value = in_list(connection, "position", steps)
    sql = f"UPDATE request_steps SET closed = 1 WHERE request_id = ? AND {condition} AND closed = 0"
    connection.execute(sql, (request, value))


def elements_in(
    connection: Connection, request: int, step: int, state: ElementState, after: int, most: int
) -> list[int]:
    """Elements of a step in this state, with ids above `after`, locked until the transaction ends."""
    sql = (
        "SELECT id FROM elements WHERE request_id = ? AND step = ? AND state = ? AND id > ? ORDER BY id LIMIT ?"
        f"{lock_clause(connection, 'UPDATE')}"
    )
    return [row[0] for row in connection.execute(sql, (request, step, state, after, most))]


class WaitingElementJob(NamedTuple):
    """A job of an element that is not in the pool, or waits there."""

    id: int
    element: int
    step: int
    location_set: int
    site: str
    job: int | None
    avoided_sites: str
    retries: int
    """Failed tries that were followed by another."""


_JOB = columns(WaitingElementJob, element="element_id", job="job_id")


def jobs_in(
    connection: Connection, request: int, steps: Sequence[int], state: str, after: int, most: int
) -> list[WaitingElementJob]:
    """Element jobs of these steps in this state, with ids above `after`, locked until the transaction ends."""
    condition, value = in_list(connection, "step", steps)
    sql = (
        f"SELECT {_JOB} FROM element_jobs WHERE request_id = ? AND state = ? AND {condition} AND id > ?"
        f" ORDER BY id LIMIT ?{lock_clause(connection, 'UPDATE')}"
    )
    rows = connection.execute(sql, (request, state, value, after, most))
    return [WaitingElementJob(*row) for row in rows]


class CanceledJob(NamedTuple):
    at: float
    message: str
    id: int


save_canceled = RowWriter[CanceledJob](
    update(
        "element_jobs",
        ("ended", "message", "id"),
        "state = 'canceled', not_before = NULL, ended = {ended}, message = {message}",
        "id = {id}",
    )
)


class ExhaustedJob(NamedTuple):
    at: float
    id: int


save_exhausted = RowWriter[ExhaustedJob](
    update(
        "element_jobs",
        ("ended", "id"),
        "state = 'exhausted', not_before = NULL, ended = {ended}",
        "id = {id}",
    )
)
"""The error of the last try stays."""


class JobSite(NamedTuple):
    site: str
    id: int


save_sites = RowWriter[JobSite](update("element_jobs", ("site", "id"), "site = {site}", "id = {id}"))

take_back = RowWriter[tuple[int]](
    update("element_jobs", ("id",), "state = 'made', job_id = NULL, site = ''", "id = {id}")
)
"""The pool jobs of these element jobs were killed, since no site may run them: they are made as before."""
