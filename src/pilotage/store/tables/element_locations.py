"""The locations of elements that are not split yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list

UNSPLIT: Final = (ElementState.AVAILABLE, ElementState.NEGOTIATING, ElementState.ACQUIRED)
_STATES: Final = ", ".join(f"'{state}'" for state in UNSPLIT)


class LocatedElement(NamedTuple):
    element: int
    location_set: int
    blocks: tuple[int, ...]


def unsplit(connection: Connection, inputs: Sequence[int]) -> list[LocatedElement]:
    """The elements that are not split yet, of all steps with one of these input data sets."""
    condition, value = in_list(connection, "s.input_dataset", inputs)
    rows = connection.execute(
        "SELECT e.id, e.location_set, e.blocks FROM request_steps s"
        " JOIN elements e ON e.request_id = s.request_id AND e.step = s.position"
        f" WHERE {condition} AND e.state IN ({_STATES}) ORDER BY e.id",
        (value,),
    )
    return [LocatedElement(row[0], row[1], tuple(json.loads(row[2]))) for row in rows]


_MOVE = bulk_statements.update(
    "elements",
    ("location_set", "changed", "id", "old"),
    "location_set = {location_set}, changed = {changed}",
    f"id = {{id}} AND location_set = {{old}} AND state IN ({_STATES})",
    returning="id",
    old="bigint",
)


def move(connection: Connection, rows: Sequence[tuple[int, float, int, int]]) -> set[int]:
    """Store (new set, now, element, old set); returns the elements that were still unsplit, with the old set."""
    return {row[0] for row in connection.execute_bulk_returning(_MOVE, rows)}
