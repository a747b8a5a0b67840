"""The jobs of elements: made of masks, released to the pool, and ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pilotage.core.workqueue.states import ElementJobState
from pilotage.store.engine.bulk_statements import RowWriter, update
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import hint
from pilotage.store.engine.rows import columns

FIRST_HEADS, MOST_HEADS = 8, 512
"""Made jobs of a group read by one statement, at first and at most."""

MESSAGE_LENGTH = 500
"""Characters of the message of a failure; the rest is cut."""


UNFINISHED = ("made", "released", "cooloff")
"""States of jobs that have not ended."""


def has_any(connection: Connection, request: int) -> bool:
    """Whether a job was made of an element of this request."""
    sql = "SELECT 1 FROM element_jobs WHERE request_id = ? LIMIT 1"
    return connection.execute(sql, (request,)).fetchone() is not None


NONE_AVOIDED = "[]"


def avoided(text: str) -> frozenset[str]:
    """The sites where a job is not tried again, from its row."""
    return frozenset() if text == NONE_AVOIDED else frozenset(json.loads(text))


class MadeGroup(NamedTuple):
    """Made jobs of one step, with equal locations, of one agent."""

    request: int
    step: int
    location_set: int
    agent: int
    avoided_sites: str = NONE_AVOIDED
    """JSON list of sites where they are not tried again."""


_MADE_GROUP = columns(MadeGroup, request="request_id", agent="agent_id")


_NEXT_GROUP = (
    f"SELECT {_MADE_GROUP} FROM element_jobs WHERE state = 'made'"
    " AND (request_id, step, location_set, agent_id, avoided_sites) > (?, ?, ?, ?, ?)"
    " ORDER BY request_id, step, location_set, agent_id, avoided_sites LIMIT 1"
)
BEFORE_ALL = MadeGroup(-1, 0, 0, 0, "")


@hint("each job is locked and looked at again before its release")
def made_groups(connection: Connection, after: MadeGroup, most: int) -> list[MadeGroup]:
    """At most `most` groups with made jobs. Each costs one look into the index, however many jobs it has."""
    groups: list[MadeGroup] = []
    while len(groups) < most and (row := connection.execute(_NEXT_GROUP, after).fetchone()) is not None:
        after = MadeGroup(*row)
        groups.append(after)
    return groups


def requests_with_made(connection: Connection) -> list[int]:
    """The requests with made jobs, ascending. Each costs one look into the index."""
    sql = "SELECT min(request_id) FROM element_jobs WHERE state = 'made' AND request_id > ?"
    requests: list[int] = []
    last = 0
    while (last := connection.execute(sql, (last,)).fetchone()[0]) is not None:
        requests.append(last)
    return requests


_HEADS = (
    "SELECT id FROM element_jobs WHERE state = 'made' AND request_id = ? AND step = ? AND location_set = ?"
    " AND agent_id = ? AND avoided_sites = ? AND id > ? ORDER BY id LIMIT ?"
)


@hint("each job is locked and looked at again before its release")
def made_jobs(connect: Callable[[], Connection], group: MadeGroup) -> Iterator[int]:
    """The ids of the made jobs of a group, ascending. They are read as they are asked for, by `connect()`."""
    after, size, count = 0, FIRST_HEADS // 2, FIRST_HEADS // 2
    while count == size:
        size = min(2 * size, MOST_HEADS)
        ids = [row[0] for row in connect().execute(_HEADS, (*group, after, size))]
        yield from ids
        count = len(ids)
        after = ids[-1] if ids else after


class MadeJob(NamedTuple):
    """A job that is still made."""

    group: MadeGroup
    """The group that it belongs to now."""
    events: int


def still_made(connection: Connection, ids: Sequence[int]) -> dict[int, MadeJob]:
    """The jobs among `ids` that are still made; locked until the transaction ends."""
    condition, value = in_list(connection, "id", ids)
    sql = (
        f"SELECT id, events, {_MADE_GROUP} FROM element_jobs WHERE {condition} AND state = 'made' ORDER BY id"
    )
    rows = connection.execute(sql + lock_clause(connection, "UPDATE"), (value,))
    return {row[0]: MadeJob(MadeGroup(*row[2:]), row[1]) for row in rows}


class ReleasedJob(NamedTuple):
    site: str
    job: int
    id: int


save_released = RowWriter[ReleasedJob](
    update(
        "element_jobs",
        ("site", "job_id", "id"),
        "state = 'released', site = {site}, job_id = {job_id}",
        "id = {id}",
    )
)


class ReleasedCount(NamedTuple):
    """Unfinished pool jobs that count alike."""

    agent: int
    request: int
    step: int
    site: str
    """Where they run; of waiting jobs the site for which they were released."""
    running: bool
    jobs: int


def released_counts(connection: Connection, requests: Sequence[int]) -> list[ReleasedCount]:
    """Count the unfinished pool jobs of these requests. The database does the work, so it may be a thread's."""
    condition, value = in_list(connection, "e.request_id", requests)
    held = "j.state IN ('Running', 'Stalled', 'Completing')"
    sql = (
        f"SELECT e.agent_id, e.request_id, e.step, CASE WHEN {held} THEN p.site ELSE e.site END AS place,"
        f" {held} AS held, count(*) FROM element_jobs e JOIN jobs j ON j.id = e.job_id"
        " LEFT JOIN pilots p ON p.id = j.pilot_id"
        f" WHERE {condition} AND e.state = 'released' AND j.ended IS NULL"
        " GROUP BY e.agent_id, e.request_id, e.step, place, held"
    )
    rows = connection.execute(sql, (value,))
    return [
        ReleasedCount(agent or 0, request, step, site or "", bool(running), count)
        for agent, request, step, site, running, count in rows
    ]


class ElementJobRow(NamedTuple):
    """The columns that the roll-up needs."""

    id: int
    element: int
    request: int
    step: int
    state: ElementJobState
    events: int
    files: int
    retries: int
    location_set: int
    avoided_sites: str
    job: int | None
    exit_code: int | None
    failure: str
    message: str
    """The message of its last failed try."""
    canceling: bool
    """Its element is being cancelled, or was."""


_ROLLED = (
    "j.id, j.element_id, j.request_id, j.step, j.state, j.events, j.files, j.retries, j.location_set,"
    " j.avoided_sites, j.job_id, j.exit_code, j.failure, j.message,"
    " e.state IN ('CancelRequested', 'Canceled')"
)


def by_ids(connection: Connection, ids: Sequence[int]) -> dict[int, ElementJobRow]:
    """The existing element jobs of these ids, locked until the transaction ends."""
    condition, value = in_list(connection, "j.id", ids)
    sql = (
        f"SELECT {_ROLLED} FROM element_jobs j JOIN elements e ON e.id = j.element_id WHERE {condition} ORDER BY j.id"
        f"{lock_clause(connection, 'UPDATE OF j')}"
    )
    rows = connection.execute(sql, (value,))
    return {
        row[0]: ElementJobRow._make((*row[:4], ElementJobState(row[4]), *row[5:14], bool(row[14])))
        for row in rows
    }


class RolledJob(NamedTuple):
    """An element job after the end of its pool job."""

    state: ElementJobState
    retries: int
    not_before: float | None
    ended: float
    exit_code: int | None
    failure: str
    message: str
    avoided_sites: str
    id: int


save_rolled = RowWriter[RolledJob](
    update(
        "element_jobs",
        ("state", "retries", "not_before", "ended", "exit_code", "failure", "message", "avoided_sites", "id"),
        "state = {state}, retries = {retries}, not_before = {not_before}, ended = {ended},"
        " exit_code = {exit_code}, failure = {failure}, message = {message}, avoided_sites = {avoided_sites}",
        "id = {id}",
    )
)


def make_again(connection: Connection, now: float, most: int) -> int:
    """Make at most `most` jobs again whose cool-off is over; returns their number."""
    sql = (
        "UPDATE element_jobs SET state = 'made', not_before = NULL WHERE id IN"
        " (SELECT id FROM element_jobs WHERE state = 'cooloff' AND not_before < ?"
        f" ORDER BY not_before LIMIT ?{lock_clause(connection, 'UPDATE SKIP LOCKED')})"
    )
    return connection.execute(sql, (now, most)).rowcount


def next_cooloff_end(connection: Connection) -> float | None:
    """When the next cool-off ends; None: no job is in one."""
    row = connection.execute("SELECT min(not_before) FROM element_jobs WHERE state = 'cooloff'").fetchone()
    return None if row[0] is None else float(row[0])
