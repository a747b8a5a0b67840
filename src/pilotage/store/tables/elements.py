"""Rows of elements. The services have checked each move against the table of states and the hand-over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pilotage.core.workqueue.pull import Candidate
from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.bulk_statements import RowWriter, insert, update
from pilotage.store.engine.connection import Connection, array_literal, bounded_sum, in_list, lock_clause
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.engine.rows import columns

UNSPLIT = (ElementState.NEGOTIATING, ElementState.ACQUIRED)


class ElementRow(NamedTuple):
    """One element."""

    id: int
    request_id: int
    step: int
    state: ElementState
    jobs: int
    events: int
    files: int
    size: int
    blocks: str
    """JSON list of ids."""
    mask: str
    """JSON; empty: the whole of its blocks."""
    location_set: int
    agent_id: int | None
    site: str
    epoch: int
    finished_epoch: int
    finished_digest: str
    offered_to: int | None
    """The agent that got the present epoch; it may have given the element back since."""

    @property
    def block_ids(self) -> list[int]:
        return [int(block) for block in json.loads(self.blocks)]


_COLUMNS = columns(ElementRow)


class NewElement(NamedTuple):
    """An element to be stored, in the order of the statement."""

    request_id: int
    step: int
    digest: str
    state: str
    jobs: int
    events: int
    files: int
    size: int
    blocks: str
    mask: str
    location_set: int
    created: float
    changed: float


class OpenGroup(NamedTuple):
    """The available elements of a step with one set of locations."""

    request_id: int
    step: int
    location_set: int
    first: int
    """The id of the oldest."""


class Move(NamedTuple):
    """A change of the state of an element, with the agent and the site that it has from then on."""

    state: str
    agent_id: int | None
    site: str
    changed: float
    reason: str
    id: int


_INSERT = insert("elements", NewElement._fields, conflict=("digest",), otherwise="NOTHING")
_OFFER = update(
    "elements",
    ("agent_id", "site", "changed", "id"),
    "state = 'Negotiating', agent_id = {agent_id}, offered_to = {agent_id}, site = {site}, changed = {changed},"
    " epoch = epoch + 1",
    "id = {id} AND state = 'Available'",
    returning="elements.id, elements.epoch",
)
save_moves = RowWriter[Move](
    update(
        "elements",
        Move._fields,
        "state = {state}, agent_id = {agent_id}, site = {site}, changed = {changed}, reason = {reason}",
        "id = {id}",
    )
)


def insert_new(connection: Connection, elements: Iterable[NewElement]) -> int:
    """Store elements that are not there yet; returns their number."""
    return connection.execute_bulk(_INSERT, list(elements))


def has_available(connection: Connection, request: int) -> bool:
    """Whether a request has an element that no agent has taken."""
    sql = "SELECT 1 FROM elements WHERE request_id = ? AND state = 'Available' LIMIT 1"
    return connection.execute(sql, (request,)).fetchone() is not None


def count_available(connection: Connection, request: int, step: int, most: int) -> int:
    """The number of elements of a step that no agent has taken; `most` stands for all above it."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM elements WHERE state = 'Available' AND request_id = ? AND step = ?"
        " LIMIT ?) AS counted"
    )
    return int(connection.execute(sql, (request, step, most)).fetchone()[0])


@hint("a mask is stored under the lock of its element")
def by_ids(connection: Connection, ids: Sequence[int], *, lock: bool = False) -> dict[int, ElementRow]:
    """Elements by id. `lock`: other servers cannot change them before this transaction ends."""
    if not ids:
        return {}
    condition, value = in_list(connection, "id", ids)
    clause = f" ORDER BY id{lock_clause(connection, 'UPDATE')}" if lock else ""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM elements WHERE {condition}{clause}", (value,))
    return {row[0]: _row(row) for row in rows}


def _row(row: Sequence[object]) -> ElementRow:
    made = ElementRow(*row)  # type: ignore[arg-type]
    return made._replace(state=ElementState(made.state))


def unsplit_of(connection: Connection, agent: int) -> list[ElementRow]:
    """The unsplit elements of an agent, in state CancelRequested too; locked until the transaction ends."""
    sql = (
        f"SELECT {_COLUMNS} FROM elements WHERE agent_id = ? AND (state IN ('Negotiating', 'Acquired')"
        f" OR (state = 'CancelRequested' AND finished_epoch < epoch)) ORDER BY id"
        f"{lock_clause(connection, 'UPDATE')}"
    )
    return [_row(row) for row in connection.execute(sql, (agent,))]


def open_groups(connection: Connection, steps: Sequence[tuple[int, int]]) -> list[OpenGroup]:
    """The groups of available elements of these steps, each given as (request, position).

    The query jumps from group to group in the index, so its cost depends on the number of groups only.
    """
    if connection.dialect == "sqlite":
        wanted = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"
        values: list[str] = [json.dumps(steps)]
    else:
        wanted = "SELECT * FROM unnest(?::bigint[], ?::integer[])"
        values = [array_literal(column, "bigint") for column in zip(*steps, strict=True)]
    among = "FROM elements WHERE state = 'Available' AND request_id = r AND step = p"
    sql = (
        f"WITH RECURSIVE wanted(r, p) AS ({wanted}), found(r, p, s) AS ("
        f" SELECT r, p, (SELECT min(location_set) {among}) FROM wanted"
        f" UNION ALL SELECT r, p, (SELECT min(location_set) {among} AND location_set > s) FROM found"
        " WHERE s IS NOT NULL)"
        f" SELECT r, p, s, (SELECT min(id) {among} AND location_set = s) FROM found WHERE s IS NOT NULL"
    )
    rows = connection.execute(sql, values).fetchall() if steps else []
    return [OpenGroup(*row) for row in rows if row[3] is not None]


def probe_groups(connection: Connection, groups: Sequence[tuple[int, int, int]]) -> list[OpenGroup]:
    """The `open_groups` among these, each given as (request, position, location set)."""
    if connection.dialect == "sqlite":
        wanted = (
            "SELECT json_extract(value, '$[0]') AS r, json_extract(value, '$[1]') AS p,"
            " json_extract(value, '$[2]') AS s FROM json_each(?)"
        )
        values: list[str] = [json.dumps(groups)]
    else:
        wanted = "SELECT * FROM unnest(?::bigint[], ?::integer[], ?::bigint[]) AS given(r, p, s)"
        values = [array_literal(column, "bigint") for column in zip(*groups, strict=True)]
    sql = (
        "SELECT r, p, s, (SELECT min(id) FROM elements WHERE state = 'Available' AND request_id = r AND step = p"
        f" AND location_set = s) FROM ({wanted}) AS wanted"
    )
    rows = connection.execute(sql, values).fetchall() if groups else []
    return [OpenGroup(*row) for row in rows if row[3] is not None]


FIRST_HEADS, MOST_HEADS = 8, 256
"""Elements read of a group at once, at first and at most."""


def heads(connection: Connection, group: OpenGroup) -> Iterator[Candidate]:
    """The available elements of a group, the oldest first, read in pages."""
    after, size = 0, FIRST_HEADS
    sql = (
        "SELECT id, jobs FROM elements WHERE state = 'Available' AND request_id = ? AND step = ?"
        " AND location_set = ? AND id > ? ORDER BY id LIMIT ?"
    )
    while True:
        values = (group.request_id, group.step, group.location_set, after, size)
        rows = connection.execute(sql, values).fetchall()
        yield from (Candidate(*row) for row in rows)
        if len(rows) < size:
            return
        after, size = rows[-1][0], min(2 * size, MOST_HEADS)


@hint("the agent synchronises later or sooner")
def any_available(connection: Connection, team: str) -> bool:
    """Whether a request of the team, which is not paused, has an element that no agent has."""
    sql = (
        "SELECT 1 FROM requests r WHERE r.team = ? AND r.paused = 0"
        " AND r.state IN ('acquired', 'running-open', 'running-closed')"
        " AND EXISTS (SELECT 1 FROM elements WHERE state = 'Available' AND request_id = r.id) LIMIT 1"
    )
    return connection.execute(sql, (team,)).fetchone() is not None


def offer(
    connection: Connection, agent: int, offers: Sequence[tuple[int, str]], now: float
) -> dict[int, int]:
    """Offer available elements, each for a site; returns the epochs of all that were still available."""
    rows = [(agent, site, now, element) for element, site in offers]
    return dict(connection.execute_bulk_returning(_OFFER, rows))


def save_split(
    connection: Connection, element: int, *, agent: int, jobs: int, epoch: int, digest: str, now: float
) -> None:
    """Store that an element is split: its jobs are made."""
    connection.execute(
        "UPDATE elements SET state = 'Running', agent_id = ?, jobs = ?, finished_epoch = ?, finished_digest = ?,"
        " changed = ? WHERE id = ?",
        (agent, jobs, epoch, digest, now, element),
    )


def save_unsplit(connection: Connection, element: int, *, epoch: int, digest: str) -> None:
    """Store the epoch and content of the message that has ended the splitting without all jobs."""
    connection.execute(
        "UPDATE elements SET unsplit = 1, finished_epoch = ?, finished_digest = ? WHERE id = ?",
        (epoch, digest, element),
    )


def acknowledge_cancel(connection: Connection, ids: Sequence[int], now: float) -> None:
    """Store that the agents of these elements, in state CancelRequested, have stopped to split them."""
    if ids:
        condition, value = in_list(connection, "id", ids)
        connection.execute(
            f"UPDATE elements SET finished_epoch = epoch, finished_digest = 'canceled', changed = ? WHERE {condition}",
            (now, value),
        )


def held_jobs(connection: Connection, agent: int) -> list[tuple[int, str, int]]:
    """(request, site, estimated jobs) of the elements that an agent has not split."""
    sql = (
        f"SELECT request_id, site, {bounded_sum(connection, 'jobs')} FROM elements WHERE agent_id = ?"
        " AND state IN ('Negotiating', 'Acquired') GROUP BY request_id, site"
    )
    return [(row[0], row[1], int(row[2])) for row in connection.execute(sql, (agent,))]


def count_of_request(connection: Connection, request: int) -> int:
    sql = "SELECT count(*) FROM elements WHERE request_id = ?"
    return int(connection.execute(sql, (request,)).fetchone()[0])


def sum_of_steps(connection: Connection, request: int, steps: Sequence[int], unit: str) -> int:
    """The files or events of all elements of these steps. `unit`: "files" or "events"."""
    column = {"files": "files", "events": "events"}[unit]
    condition, value = in_list(connection, "step", steps)
    sql = f"SELECT {bounded_sum(connection, column)} FROM elements WHERE request_id = ? AND {condition}"
    return int(connection.execute(sql, (request, value)).fetchone()[0])


def count_by_state(connection: Connection, agent: int) -> dict[str, int]:
    """The number of an agent's elements in each state."""
    sql = "SELECT state, count(*) FROM elements WHERE agent_id = ? GROUP BY state"
    return dict(connection.execute(sql, (agent,)).fetchall())


@hint("a split element stays split; one that ends meanwhile needs no agent")
def split_of(connection: Connection, agent: int, limit: int) -> list[int]:
    """Elements that an agent has split and that have not ended."""
    sql = (
        "SELECT id FROM elements WHERE agent_id = ? AND (state = 'Running'"
        " OR (state = 'CancelRequested' AND finished_epoch = epoch)) ORDER BY id LIMIT ?"
    )
    return [row[0] for row in connection.execute(sql, (agent, limit))]


@overwrites("the agent that makes no more jobs of a split element may be any")
def give_to_agent(connection: Connection, ids: Sequence[int], agent: int) -> None:
    """Attribute elements that are split, and their jobs, to another agent."""
    for table, column in (("elements", "id"), ("element_jobs", "element_id")):
        condition, value = in_list(connection, column, ids)
        connection.execute(f"UPDATE {table} SET agent_id = ? WHERE {condition}", (agent, value))
