"""The changes of rows by which repairs mend requests, elements and data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pilotage.core.requests.states import RequestState
from pilotage.core.workqueue.roll_up import ENDED as ENDED_ELEMENTS
from pilotage.core.workqueue.states import ElementJobState, ElementState
from pilotage.store.engine.connection import Connection, bounded_sum, in_list
from pilotage.store.integrity.check import quoted
from pilotage.store.integrity.requests import UNTAKEN
from pilotage.store.tables import element_jobs
from pilotage.store.tables.requests import RequestRow

_OPEN_ELEMENTS: Final = quoted(set(ElementState) - ENDED_ELEMENTS)
_OPEN_JOBS: Final = quoted(element_jobs.UNFINISHED)


class OpenStep(NamedTuple):
    """A step of a request, with the work that is left in it."""

    position: int
    after: int | None
    has_work: bool
    """It has elements or jobs that have not ended."""
    has_input: bool
    """It has not taken all of its input."""


def steps_with_work(connection: Connection, request: int) -> list[OpenStep]:
    """The steps of a request in their order."""
    rows = connection.execute(
        "SELECT s.position, s.after, EXISTS (SELECT 1 FROM elements e WHERE e.request_id = s.request_id"
        f" AND e.step = s.position AND e.state IN ({_OPEN_ELEMENTS})) OR EXISTS (SELECT 1 FROM element_jobs j"
        f" WHERE j.request_id = s.request_id AND j.step = s.position AND j.state IN ({_OPEN_JOBS})),"
        f" {UNTAKEN} FROM request_steps s WHERE s.request_id = ? ORDER BY s.position",
        (request,),
    )
    return [OpenStep(position, after, bool(work), bool(given)) for position, after, work, given in rows]


def open_steps(connection: Connection, request: int, steps: Sequence[int], *, taking: Sequence[int]) -> None:
    """Let ended steps go on, with the data sets that they write. `taking`: the steps that get more elements."""
    them, value = in_list(connection, "position", steps)
    connection.execute(
        f"UPDATE request_steps SET ended = 0 WHERE request_id = ? AND {them}", (request, value)
    )
    further, value = in_list(connection, "position", taking)
    connection.execute(
        f"UPDATE request_steps SET closed = 0 WHERE request_id = ? AND {further}", (request, value)
    )
    for column in ("output_dataset", "log_dataset"):
        connection.execute(
            f"UPDATE datasets SET open = 1 WHERE removed IS NULL AND id IN (SELECT {column} FROM request_steps"
            " WHERE request_id = ? AND ended = 0)",
            (request,),
        )


def put_back(
    connection: Connection, request: RequestRow, state: RequestState, now: float, reason: str
) -> None:
    """Give a request an earlier state, which no move leads to. An abort or a refusal is carried out again."""
    propagating = state in (RequestState.ABORTED, RequestState.REJECTED, RequestState.REJECTED_ARCHIVED)
    connection.execute(
        "UPDATE requests SET state = ?, changed = ?, version = version + 1, propagating = ?, reason = ?"
        " WHERE id = ? AND version = ?",
        (state, now, int(propagating), reason, request.id, request.version),
    )


def count_jobs(connection: Connection, elements: Sequence[int]) -> None:
    """Give elements the numbers and events of their jobs."""
    them, value = in_list(connection, "id", elements)
    counts = ", ".join(
        f"{column} = (SELECT count(*) FROM element_jobs j WHERE j.element_id = elements.id AND j.state = '{state}')"
        for column, state in (
            ("jobs_done", ElementJobState.DONE),
            ("jobs_failed", ElementJobState.EXHAUSTED),
            ("jobs_canceled", ElementJobState.CANCELED),
        )
    )
    events = (
        f"(SELECT {bounded_sum(connection, 'j.events')} FROM element_jobs j WHERE j.element_id = elements.id"
        " AND j.state = 'done')"
    )
    jobs = (
        "CASE WHEN state IN ('Running', 'Done') THEN (SELECT count(*) FROM element_jobs j"
        " WHERE j.element_id = elements.id) ELSE jobs END"
    )
    connection.execute(
        f"UPDATE elements SET {counts}, events_done = {events}, jobs = {jobs} WHERE {them}", (value,)
    )


def name_as_unsplit(
    connection: Connection, elements: Sequence[int], now: float, reason: str
) -> list[tuple[int, int]]:
    """Let elements count as failed since a part of them has no job; returns (request, element) of each."""
    them, value = in_list(connection, "id", elements)
    rows = connection.execute(
        f"UPDATE elements SET state = 'Failed', unsplit = 1, changed = ?, reason = ? WHERE {them} AND state = 'Done'"
        " RETURNING request_id, id",
        (now, reason, value),
    )
    return sorted((row[0], row[1]) for row in rows)


class PoolEnd(NamedTuple):
    """An element job, and the end of its job of the pool."""

    element_job: int
    job: int | None
    state: str | None
    """None: the job is gone."""
    at: float | None
    exit_code: int | None
    failure: str | None
    reason: str | None
    wall: float | None
    tries: int
    site: str | None


def ends_of_pool_jobs(connection: Connection, ids: Sequence[int]) -> list[PoolEnd]:
    them, value = in_list(connection, "e.id", ids)
    columns = "id, state, ended, exit_code, reason, epoch, failures, own_failures"
    rows = connection.execute(
        "SELECT e.id, e.job_id, j.state, j.ended, j.exit_code, a.failure, j.reason, a.wall,"
        " coalesce(j.failures + j.own_failures, 0), a.site FROM element_jobs e LEFT JOIN"
        f" (SELECT {columns} FROM jobs UNION ALL SELECT {columns} FROM history) AS j ON j.id = e.job_id"
        f" LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch WHERE {them} ORDER BY e.id",
        (value,),
    )
    return [PoolEnd(*row) for row in rows]


def end_pauses(connection: Connection, jobs: Sequence[int], now: float) -> None:
    them, value = in_list(connection, "id", jobs)
    connection.execute(f"UPDATE element_jobs SET not_before = ? WHERE {them}", (now, value))


# --- data sets


def close_blocks(connection: Connection, blocks: Sequence[int]) -> None:
    """Let blocks be closed, with a number, so that steps take them."""
    for block in blocks:
        connection.execute(
            "UPDATE blocks SET open = 0, closed_number = coalesce(closed_number, 1 + (SELECT"
            " coalesce(max(b.closed_number), 0) FROM blocks b WHERE b.dataset_id = blocks.dataset_id)) WHERE id = ?",
            (block,),
        )


def count_closed(connection: Connection, datasets: Sequence[int]) -> None:
    """Give data sets the contents of their closed blocks."""
    them, value = in_list(connection, "id", datasets)
    closed = "FROM blocks b WHERE b.dataset_id = datasets.id AND b.open = 0"
    sums = ", ".join(
        f"closed_{kind} = (SELECT {bounded_sum(connection, f'b.{kind}')} {closed})"
        for kind in ("files", "events", "size")
    )
    connection.execute(
        f"UPDATE datasets SET closed_blocks = (SELECT count(*) {closed}), {sums} WHERE {them}", (value,)
    )


def delete_of_blocks(connection: Connection, blocks: Sequence[int]) -> None:
    them, value = in_list(connection, "block_id", blocks)
    for table in ("replicas", "files"):
        connection.execute(f"DELETE FROM {table} WHERE {them}", (value,))


def place_jobs(connection: Connection, location_set: int, jobs: Sequence[int]) -> None:
    """Let made jobs run at the sites of a set."""
    them, value = in_list(connection, "id", jobs)
    connection.execute(f"UPDATE element_jobs SET location_set = ? WHERE {them}", (location_set, value))
