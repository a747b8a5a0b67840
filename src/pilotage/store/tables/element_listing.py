"""Lists elements of a request, and groups the failed ones by their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import SHOWN, hint
from pilotage.store.engine.rows import columns


class ListedElement(NamedTuple):
    """One element of a list. It has the fields of `wire.requests.RequestElement`, but for `step`."""

    id: int
    step: int
    state: str
    agent: str
    """The name of the agent that has it or made its jobs; empty: none."""
    site: str
    jobs: int
    jobs_done: int
    jobs_failed: int
    jobs_canceled: int
    events: int
    files: int
    created: float
    changed: float
    reason: str


class FailedElements(NamedTuple):
    """Elements of a step that failed for the same reason."""

    step: int
    reason: str
    number: int
    example: int
    """The id of the newest."""


_LISTED = columns(ListedElement, "e.", agent="coalesce(a.name, '')")
_PAGE = (
    f"SELECT {_LISTED} FROM elements e LEFT JOIN agents a ON a.id = e.agent_id"
    " WHERE e.request_id = ? AND e.step = ? AND e.state = ? AND e.id > ? AND e.changed <= ? ORDER BY e.id LIMIT ?"
)


@hint(SHOWN)
def page(
    connection: Connection,
    request: int,
    steps: Sequence[int],
    states: Sequence[str],
    *,
    unchanged_since: float,
    after: int,
    most: int,
) -> list[ListedElement]:
    """Up to `most` elements with ids above `after`, by id.

    Each pair of step and state has its range of the index, so rare states of large requests are found at once.
    """
    ranges = [
        [
            ListedElement(*row)
            for row in connection.execute(_PAGE, (request, step, state, after, unchanged_since, most))
        ]
        for step in steps
        for state in states
    ]
    return list(islice(merge(*ranges, key=attrgetter("id")), most))


@hint(SHOWN)
def failed(connection: Connection, request: int, most: int) -> list[FailedElements]:
    """The most frequent reasons of failed elements."""
    sql = (
        "SELECT e.step, e.reason, count(*), max(e.id) FROM request_steps s"
        " JOIN elements e ON e.request_id = s.request_id AND e.step = s.position AND e.state = 'Failed'"
        " WHERE s.request_id = ? AND e.unsplit = 1"
        " GROUP BY e.step, e.reason ORDER BY 3 DESC, 4 DESC LIMIT ?"
    )
    return [FailedElements(*row) for row in connection.execute(sql, (request, most))]
