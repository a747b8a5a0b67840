"""The elements of requests as spans need them: the place of a job in its request, and the facts of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import Connection, in_list


class TracedElement(NamedTuple):
    """An element of a request."""

    id: int
    request_id: int
    step: int
    created: float


_ELEMENT = "e.id, e.request_id, e.step, e.created"


def elements(connection: Connection, ids: Sequence[int]) -> list[TracedElement]:
    """The existing elements among these."""
    condition, value = in_list(connection, "e.id", ids)
    return [
        TracedElement(*row)
        for row in connection.execute(f"SELECT {_ELEMENT} FROM elements e WHERE {condition}", (value,))
    ]


def element_of_job(connection: Connection, element_job: int, most: int) -> TracedElement | None:
    """The element of an element job; None: it is deleted, or has `most` jobs with lower digests."""
    row = connection.execute(
        f"SELECT {_ELEMENT}, j.digest FROM element_jobs j JOIN elements e ON e.id = j.element_id WHERE j.id = ?",
        (element_job,),
    ).fetchone()
    if row is None:
        return None
    element, digest = TracedElement(*row[:-1]), row[-1]
    before = connection.execute(
        "SELECT 1 FROM element_jobs WHERE element_id = ? AND digest < ? ORDER BY digest LIMIT 1 OFFSET ?",
        (element.id, digest, most - 1),
    ).fetchone()
    return element if before is None else None


def first_element(connection: Connection, request: int) -> int:
    """The lowest id of the elements of a request."""
    sql = "SELECT coalesce(min(id), 0) FROM elements WHERE request_id = ?"
    return int(connection.execute(sql, (request,)).fetchone()[0])


def last_reason(connection: Connection, request: int) -> str:
    """The reason of the latest move of a request that has one."""
    sql = (
        "SELECT detail FROM request_events WHERE request_id = ? AND kind = 'state' AND detail <> ''"
        " ORDER BY id DESC LIMIT 1"
    )
    row = connection.execute(sql, (request,)).fetchone()
    return "" if row is None else str(row[0])
