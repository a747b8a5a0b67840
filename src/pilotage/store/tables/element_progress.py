"""The progress of elements, and the ends that follow from the ends of their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.bulk_statements import RowWriter, update
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.tables import element_jobs


class JobsEnded(NamedTuple):
    """Jobs of an element that have ended for good."""

    done: int
    failed: int
    canceled: int
    events: int
    """Events of the jobs that are done."""
    id: int


add = RowWriter[JobsEnded](
    update(
        "elements",
        ("done", "failed", "canceled", "events", "id"),
        "jobs_done = jobs_done + {done}, jobs_failed = jobs_failed + {failed},"
        " jobs_canceled = jobs_canceled + {canceled}, events_done = events_done + {events}",
        "id = {id}",
        done="integer",
        failed="integer",
        canceled="integer",
    )
)


class ElementProgress(NamedTuple):
    id: int
    request: int
    step: int
    state: ElementState
    jobs: int
    """Estimated, until the element runs."""
    done: int
    failed: int
    canceled: int
    unfinished: int
    """At least 1 while its agent may make more jobs."""


def by_ids(connection: Connection, ids: Sequence[int]) -> list[ElementProgress]:
    """The existing elements of these ids, locked until the transaction ends."""
    condition, value = in_list(connection, "id", ids)
    # The number of jobs is known when the element is split. One that is cancelled before has fewer.
    unfinished = (
        "CASE WHEN finished_epoch < epoch THEN 1 WHEN state = 'Running' THEN"
        " jobs - jobs_done - jobs_failed - jobs_canceled ELSE (SELECT count(*) FROM element_jobs j WHERE"
        " j.element_id = elements.id AND j.state IN ('made', 'released', 'cooloff')) END"
    )
    sql = (
        f"SELECT id, request_id, step, state, jobs, jobs_done, jobs_failed, jobs_canceled, {unfinished}"
        f" FROM elements WHERE {condition} ORDER BY id"
    )
    rows = connection.execute(sql + lock_clause(connection, "UPDATE"), (value,))
    return [ElementProgress._make((*row[:3], ElementState(row[3]), *row[4:])) for row in rows]


class EndedElement(NamedTuple):
    state: ElementState
    at: float
    reason: str
    id: int


save_ended = RowWriter[EndedElement](
    update(
        "elements",
        ("state", "changed", "reason", "id"),
        "state = {state}, changed = {changed}, reason = {reason}",
        "id = {id}",
    )
)


class StepProgress(NamedTuple):
    """The states of the elements of one step, and of their jobs, at one instant."""

    states: frozenset[ElementState]
    """The states that elements of the step have."""
    has_unfinished_jobs: bool


_OF_STEP = [
    f"EXISTS (SELECT 1 FROM elements WHERE request_id = ? AND step = ? AND state = '{s}')"
    for s in ElementState
]
_UNFINISHED_OF_STEP = [
    f"EXISTS (SELECT 1 FROM element_jobs WHERE request_id = ? AND step = ? AND state = '{state}')"
    for state in element_jobs.UNFINISHED
]
_STEP_PROGRESS = f"SELECT {', '.join(_OF_STEP)}, {' OR '.join(_UNFINISHED_OF_STEP)}"


def of_step(connection: Connection, request: int, step: int) -> StepProgress:
    """The progress of a step, by one look into the index for each state.

    All looks are one statement. Between two statements another server may give an element back: an element that goes
    from Negotiating to Available is then in no state, and the step would end without its events.
    """
    looks = len(_OF_STEP) + len(_UNFINISHED_OF_STEP)
    *present, unfinished = connection.execute(_STEP_PROGRESS, (request, step) * looks).fetchone()
    states = frozenset(state for state, is_there in zip(ElementState, present, strict=True) if is_there)
    return StepProgress(states, bool(unfinished))


def end_step(connection: Connection, request: int, step: int) -> None:
    """Store that a step has ended: it gets no further elements, and its output is complete."""
    sql = "UPDATE request_steps SET closed = 1, ended = 1 WHERE request_id = ? AND position = ?"
    connection.execute(sql, (request, step))
