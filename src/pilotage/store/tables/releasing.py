"""The facts that decide about the release: requests that nobody changes meanwhile, and live agents."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import hint
from pilotage.store.tables import element_jobs
from pilotage.store.tables.queued_requests import QueuedRequest

_COLUMNS = ", ".join(QueuedRequest._fields)


def share(connection: Connection, requests: Sequence[int]) -> dict[int, QueuedRequest]:
    """These requests as they are now. No other server changes them until the transaction ends."""
    condition, value = in_list(connection, "id", requests)
    sql = f"SELECT {_COLUMNS} FROM requests WHERE {condition} ORDER BY id{lock_clause(connection, 'SHARE')}"
    return {row[0]: QueuedRequest(*row) for row in connection.execute(sql, (value,))}


def with_made_jobs(connection: Connection) -> list[int]:
    """The requests whose made jobs may be released, ascending. A paused request is left out."""
    made = element_jobs.requests_with_made(connection)
    condition, value = in_list(connection, "id", made)
    paused = {
        row[0]
        for row in connection.execute(f"SELECT id FROM requests WHERE paused = 1 AND {condition}", (value,))
    }
    return [request for request in made if request not in paused]


def in_states(connection: Connection, states: Sequence[str]) -> list[int]:
    """The ids of the requests in these states."""
    condition, value = in_list(connection, "state", states)
    return [row[0] for row in connection.execute(f"SELECT id FROM requests WHERE {condition}", (value,))]


@hint("a job of an agent that has just ended may be released too")
def live_agents(connection: Connection, now: float) -> dict[str, list[int]]:
    """The ids of each team's agents that live and do not drain, ascending."""
    sql = "SELECT team, id FROM agents WHERE ended IS NULL AND draining = 0 AND lease_until > ? ORDER BY id"
    agents: dict[str, list[int]] = {}
    for team, agent in connection.execute(sql, (now,)):
        agents.setdefault(team, []).append(agent)
    return agents
