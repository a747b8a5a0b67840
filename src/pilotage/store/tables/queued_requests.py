"""Requests and their steps as the work queue reads them: few columns, of many requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import decision, hint
from pilotage.store.engine.rows import columns


class QueuedRequest(NamedTuple):
    """A request with the facts that decide about its elements."""

    id: int
    name: str
    state: str
    priority: int
    team: str
    sites: str
    """JSON list."""
    banned_sites: str
    """JSON list."""
    trust_input: int
    trust_pileup: int
    open_until: float | None
    origin_id: int | None
    paused: int = 0


_REQUEST = columns(QueuedRequest)


class QueuedStep(NamedTuple):
    """A step of a request."""

    request_id: int
    position: int
    name: str
    type: str
    start_policy: str
    splitting: str
    """JSON."""
    input_dataset: int | None
    after: int | None
    further_inputs: str
    """JSON list of ids."""
    pileup: str
    """JSON list of ids."""
    output_dataset: int | None
    taken: int
    closed: int


_STEP = columns(QueuedStep)


class QueuedEvent(NamedTuple):
    """An event of a request, in the order of the statement."""

    request_id: int
    at: float
    actor: str
    kind: str
    old: str
    new: str
    detail: str


save_events = RowWriter[QueuedEvent](insert("request_events", QueuedEvent._fields))


_WORKING = "('acquired', 'running-open', 'running-closed', 'force-complete')"


@hint("an offer decides on the element's row")
def pullable(connection: Connection, team: str) -> list[QueuedRequest]:
    """The requests of a team whose elements may be pulled, the highest priority first."""
    sql = (
        f"SELECT {_REQUEST} FROM requests WHERE state IN {_WORKING} AND team = ? AND paused = 0"
        " ORDER BY priority DESC, id"
    )
    return [QueuedRequest(*row) for row in connection.execute(sql, (team,))]


@hint("the request is locked and compared before jobs are released; elements carry their state")
def by_ids(connection: Connection, ids: Sequence[int]) -> dict[int, QueuedRequest]:
    if not ids:
        return {}
    condition, value = in_list(connection, "id", ids)
    rows = connection.execute(f"SELECT {_REQUEST} FROM requests WHERE {condition}", (value,))
    return {row[0]: QueuedRequest(*row) for row in rows}


@decision("the facts of a step that a job needs never change after its elements are made")
def steps_of(connection: Connection, requests: Sequence[int]) -> list[QueuedStep]:
    """The steps of these requests in the order of their positions."""
    if not requests:
        return []
    condition, value = in_list(connection, "request_id", requests)
    sql = f"SELECT {_STEP} FROM request_steps WHERE {condition} ORDER BY request_id, position"
    return [QueuedStep(*row) for row in connection.execute(sql, (value,))]


def to_take_in(connection: Connection, after: int, limit: int) -> list[int]:
    """Requests with a team and a step that may get elements, in order of id: new ones, and ones in the queue."""
    sql = (
        f"SELECT id FROM requests WHERE (state IN ('assigned', 'staged') AND team <> '' OR state IN {_WORKING}"
        " AND EXISTS (SELECT 1 FROM request_steps WHERE request_id = requests.id AND closed = 0))"
        " AND id > ? ORDER BY id LIMIT ?"
    )
    return [row[0] for row in connection.execute(sql, (after, limit))]


def set_reason(connection: Connection, request: int, reason: str, now: float) -> None:
    """Store why a request waits; an equal reason changes nothing."""
    connection.execute(
        "UPDATE requests SET reason = ?, changed = ? WHERE id = ? AND reason <> ?",
        (reason, now, request, reason),
    )


def set_start_policy(connection: Connection, request: int, step: int, policy: str) -> None:
    """Let the intake of a step that has no element yet follow another start policy."""
    connection.execute(
        "UPDATE request_steps SET start_policy = ? WHERE request_id = ? AND position = ?",
        (policy, request, step),
    )


def save_progress(connection: Connection, request: int, step: int, taken: int, *, closed: bool) -> None:
    """Store how far the intake of a step has come. `closed`: it gets no more elements."""
    connection.execute(
        "UPDATE request_steps SET taken = ?, closed = ? WHERE request_id = ? AND position = ?",
        (taken, int(closed), request, step),
    )
