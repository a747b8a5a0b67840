"""The locations of elements that have not ended, and of their jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list, lock_in_order
from pilotage.store.engine.decisions import hint
from pilotage.store.tables.element_jobs import UNFINISHED

_FOLLOWING: Final = (
    ElementState.AVAILABLE,
    ElementState.NEGOTIATING,
    ElementState.ACQUIRED,
    ElementState.RUNNING,
)
_STATES: Final = ", ".join(f"'{state}'" for state in _FOLLOWING)


class LocatedElement(NamedTuple):
    id: int
    blocks: tuple[int, ...]


@hint("each element is moved only from the locations that were read")
def unended(connection: Connection, inputs: Sequence[int]) -> list[LocatedElement]:
    """The elements that have not ended, of all steps with one of these input data sets."""
    condition, value = in_list(connection, "s.input_dataset", inputs)
    rows = connection.execute(
        "SELECT e.id, e.blocks FROM request_steps s"
        " JOIN elements e ON e.request_id = s.request_id AND e.step = s.position"
        f" WHERE {condition} AND e.state IN ({_STATES}) ORDER BY e.id",
        (value,),
    )
    return [LocatedElement(row[0], tuple(json.loads(row[1]))) for row in rows]


_MOVE = bulk_statements.update(
    "elements",
    ("location_set", "changed", "id"),
    "location_set = {location_set}, changed = {changed}",
    f"id = {{id}} AND location_set <> {{location_set}} AND state IN ({_STATES})",
    returning="id",
)


def move(connection: Connection, rows: Sequence[tuple[int, float, int]]) -> set[int]:
    """Store (set, now, element); returns the elements that had another set and had not ended."""
    _lock(connection, "elements", [row[2] for row in rows])
    return {row[0] for row in connection.execute_bulk_returning(_MOVE, rows)}


class StaleJob(NamedTuple):
    """An unfinished job with another location than its element."""

    id: int
    blocks: tuple[int, ...]
    """The blocks of its element."""


_UNFINISHED: Final = ", ".join(f"'{state}'" for state in UNFINISHED)


def stale_jobs(connection: Connection, elements: Sequence[int]) -> list[StaleJob]:
    """The stale jobs of these elements. All of their jobs are read, so use a reader's connection."""
    condition, value = in_list(connection, "j.element_id", elements)
    rows = connection.execute(
        f"SELECT j.id, e.blocks FROM element_jobs j JOIN elements e ON e.id = j.element_id WHERE {condition}"
        f" AND j.state IN ({_UNFINISHED}) AND j.location_set <> e.location_set ORDER BY j.id",
        (value,),
    )
    return [StaleJob(row[0], tuple(json.loads(row[1]))) for row in rows]


_MOVE_JOBS = bulk_statements.update(
    "element_jobs",
    ("location_set", "id"),
    "location_set = {location_set}",
    f"id = {{id}} AND state IN ({_UNFINISHED})",
)


def move_jobs(connection: Connection, rows: Sequence[tuple[int, int]]) -> None:
    """Store (set, job) of the jobs that have not ended."""
    _lock(connection, "element_jobs", [row[1] for row in rows])
    connection.execute_bulk(_MOVE_JOBS, rows)


def _lock(connection: Connection, table: str, ids: Sequence[int]) -> None:
    """Lock rows in the order of their ids, as all servers do."""
    condition, value = in_list(connection, "id", ids)
    lock_in_order(connection, table, condition, (value,))
