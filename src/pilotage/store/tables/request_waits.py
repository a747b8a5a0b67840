"""Counts of elements and element jobs that tell why a request waits."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import SHOWN, hint
from pilotage.store.engine.rows import columns


class WaitingElements(NamedTuple):
    """The available elements of a step with one set of locations."""

    step: int
    location_set: int
    elements: int


class ElementFacts(NamedTuple):
    request_id: int
    step: int
    state: str
    location_set: int
    agent_id: int | None
    site: str
    reason: str


_ELEMENT_FACTS = columns(ElementFacts)


def element(connection: Connection, element: int) -> ElementFacts | None:
    sql = f"SELECT {_ELEMENT_FACTS} FROM elements WHERE id = ?"
    row = connection.execute(sql, (element,)).fetchone()
    return ElementFacts(*row) if row else None


def waiting_elements(connection: Connection, request: int) -> list[WaitingElements]:
    sql = (
        "SELECT step, location_set, count(*) FROM elements WHERE state = 'Available' AND request_id = ?"
        " GROUP BY step, location_set"
    )
    return [WaitingElements(*row) for row in connection.execute(sql, (request,))]


class MadeCount(NamedTuple):
    """Made jobs that differ in nothing that decides about their release."""

    step: int
    location_set: int
    agent: int
    avoided_sites: str
    """JSON list."""
    jobs: int


def made_jobs(connection: Connection, request: int, element: int | None = None) -> list[MadeCount]:
    """The made jobs of a request; of one element only if it is given."""
    condition, values = ("", (request,)) if element is None else (" AND element_id = ?", (request, element))
    sql = (
        "SELECT step, location_set, agent_id, avoided_sites, count(*) FROM element_jobs"
        f" WHERE state = 'made' AND request_id = ?{condition}"
        " GROUP BY step, location_set, agent_id, avoided_sites"
    )
    return [MadeCount(*row) for row in connection.execute(sql, values)]


def elements_by_state(connection: Connection, request: int) -> dict[str, int]:
    sql = "SELECT state, count(*) FROM elements WHERE request_id = ? GROUP BY state"
    return dict(connection.execute(sql, (request,)).fetchall())


def jobs_by_state(connection: Connection, request: int, element: int | None = None) -> dict[str, int]:
    """Element jobs by state; of one element only if it is given."""
    if element is None:
        sql, value = "SELECT state, count(*) FROM element_jobs WHERE request_id = ? GROUP BY state", request
    else:
        sql, value = "SELECT state, count(*) FROM element_jobs WHERE element_id = ? GROUP BY state", element
    return dict(connection.execute(sql, (value,)).fetchall())


def next_retry(connection: Connection, request: int) -> float | None:
    """When the first failed job of a request is made again; None: none cools off."""
    sql = "SELECT min(not_before) FROM element_jobs WHERE request_id = ? AND state = 'cooloff'"
    earliest = connection.execute(sql, (request,)).fetchone()[0]
    return None if earliest is None else float(earliest)


@hint(SHOWN)
def last_retry(connection: Connection, request: int) -> float:
    """When the last failed job of a request that cools off is made again; 0: none cools off."""
    sql = "SELECT max(not_before) FROM element_jobs WHERE request_id = ? AND state = 'cooloff'"
    return float(connection.execute(sql, (request,)).fetchone()[0] or 0.0)


def waiting_job(connection: Connection, request: int, element: int | None = None) -> int | None:
    """The oldest job of a request in the pool that waits there; None: none does."""
    condition, values = ("", (request,)) if element is None else (" AND e.element_id = ?", (request, element))
    sql = (
        "SELECT j.id FROM element_jobs e JOIN jobs j ON j.id = e.job_id WHERE e.request_id = ?"
        f" AND e.state = 'released'{condition} AND j.state = 'Waiting' ORDER BY e.id LIMIT 1"
    )
    row = connection.execute(sql, values).fetchone()
    return None if row is None else int(row[0])
