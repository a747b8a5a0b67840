"""Rows of agents: who splits elements, until when, and the answer to its last pull."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import Connection, lock_clause, lock_in_order
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.engine.rows import columns

BY_ADMINISTRATOR = 1
BY_ITSELF = 2
"""Who drains an agent. Both may."""


class AgentRow(NamedTuple):
    """One agent."""

    id: int
    name: str
    team: str
    owner: str
    nonce: str
    """The nonce of its process, and of all processes that had its name before: `core/programs.py`."""
    version: str
    host: str
    joined: float
    seen: float
    lease_until: float
    draining: int
    """0, or who drains it."""
    ended: float | None
    pull_number: int
    pull_answer: str
    """JSON list of [element, epoch]."""
    drain_since: float | None
    drain_jobs: int
    """Its unfinished jobs at `drain_since`."""

    def status(self, now: float) -> str:
        """live, draining, lost (its lease is over) or ended."""
        if self.ended is not None:
            return "ended"
        if now >= self.lease_until:
            return "lost"
        return "draining" if self.draining else "live"

    def with_draining(self, draining: int, jobs: int, now: float) -> AgentRow:
        """The row with another `draining`. A drain that begins has its instant and the agent's unfinished jobs."""
        if not draining:
            return self._replace(draining=0, drain_since=None, drain_jobs=0)
        if self.draining:
            return self._replace(draining=draining)
        return self._replace(draining=draining, drain_since=now, drain_jobs=jobs)

    @property
    def answered(self) -> list[tuple[int, int]]:
        """The elements of its last pull, with their epochs."""
        return [(element, epoch) for element, epoch in json.loads(self.pull_answer)]


_COLUMNS = columns(AgentRow)


def by_id(connection: Connection, agent: int) -> AgentRow | None:
    return _one(connection, "id = ?", agent)


def for_change(connection: Connection, agent: int) -> AgentRow | None:
    """One agent; other servers cannot change it before this transaction ends."""
    return _one(connection, f"id = ?{lock_clause(connection, 'UPDATE')}", agent)


@hint("it is shown; what changes an agent locks its row")
def by_name(connection: Connection, name: str, *, lock: bool = False) -> AgentRow | None:
    """The agent of this name. `lock`: other servers cannot change it before this transaction ends."""
    clause = lock_clause(connection, "UPDATE") if lock else ""
    return _one(connection, f"name = ?{clause}", name)


def _one(connection: Connection, condition: str, value: int | str) -> AgentRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM agents WHERE {condition}", (value,)).fetchone()
    return AgentRow(*row) if row else None


def page(connection: Connection, *, everything: bool, limit: int) -> list[AgentRow]:
    """Agents by name. `everything`: ended ones too."""
    condition = "" if everything else " WHERE ended IS NULL"
    sql = f"SELECT {_COLUMNS} FROM agents{condition} ORDER BY name LIMIT ?"
    return [AgentRow(*row) for row in connection.execute(sql, (limit,))]


def insert(
    connection: Connection,
    *,
    name: str,
    team: str,
    owner: str,
    nonce: str,
    version: str,
    host: str,
    now: float,
    lease_until: float,
) -> int:
    """Store a new agent; returns its id."""
    row = connection.execute(
        "INSERT INTO agents (name, team, owner, nonce, version, host, joined, seen, lease_until)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (name, team, owner, nonce, version, host, now, now, lease_until),
    ).fetchone()
    return int(row[0])


def rejoin(
    connection: Connection,
    agent: int,
    *,
    team: str,
    nonce: str,
    version: str,
    host: str,
    now: float,
    lease_until: float,
) -> None:
    """Store that a process has joined under a known name. Another nonce forgets the answer to the last pull."""
    connection.execute(
        "UPDATE agents SET pull_number = CASE WHEN nonce = ? THEN pull_number ELSE 0 END,"
        " pull_answer = CASE WHEN nonce = ? THEN pull_answer ELSE '[]' END,"
        " team = ?, nonce = ?, version = ?, host = ?, joined = ?, seen = ?, lease_until = ?, ended = NULL"
        " WHERE id = ?",
        (nonce, nonce, team, nonce, version, host, now, now, lease_until, agent),
    )


def renew(connection: Connection, row: AgentRow, *, now: float, lease_until: float) -> None:
    """Store a new lease, and the drain of the row."""
    connection.execute_later(
        "UPDATE agents SET seen = ?, lease_until = ?, draining = ?, drain_since = ?, drain_jobs = ? WHERE id = ?",
        (now, lease_until, row.draining, row.drain_since, row.drain_jobs, row.id),
    )


def save_pull(connection: Connection, agent: int, number: int, answer: Sequence[tuple[int, int]]) -> None:
    """Store the number of a pull and the elements that it has given."""
    connection.execute_later(
        "UPDATE agents SET pull_number = ?, pull_answer = ? WHERE id = ?",
        (number, json.dumps([list(offer) for offer in answer], separators=(",", ":")), agent),
    )


def save_drain(connection: Connection, row: AgentRow) -> None:
    connection.execute(
        "UPDATE agents SET draining = ?, drain_since = ?, drain_jobs = ? WHERE id = ?",
        (row.draining, row.drain_since, row.drain_jobs, row.id),
    )


def end(connection: Connection, agent: int, now: float) -> None:
    connection.execute("UPDATE agents SET ended = ? WHERE id = ? AND ended IS NULL", (now, agent))


@hint("each agent is locked and looked at again")
def with_expired_lease(connection: Connection, now: float, limit: int) -> list[AgentRow]:
    """Agents that have not ended, and whose lease is over."""
    sql = f"SELECT {_COLUMNS} FROM agents WHERE ended IS NULL AND lease_until <= ? ORDER BY id LIMIT ?"
    return [AgentRow(*row) for row in connection.execute(sql, (now, limit))]


@overwrites("a lease grows by the length of the outage, whatever it is")
def extend_leases(
    connection: Connection, seconds: float, earliest: float, below: float | None = None
) -> None:
    """Move the leases of all agents after an outage or a clock step.

    Leases that then end before `below` (None: before `earliest`) end at `earliest`.
    """
    lock_in_order(connection, "agents", "ended IS NULL")
    connection.execute("UPDATE agents SET lease_until = lease_until + ? WHERE ended IS NULL", (seconds,))
    sql = "UPDATE agents SET lease_until = ? WHERE ended IS NULL AND lease_until < ?"
    connection.execute(sql, (earliest, earliest if below is None else below))


@hint("an heir that ends meanwhile is itself found as ended with work")
def live_of_team(connection: Connection, team: str, now: float) -> list[int]:
    """The live agents of a team that do not drain."""
    sql = (
        "SELECT id FROM agents WHERE team = ? AND ended IS NULL AND draining = 0 AND lease_until > ?"
        " ORDER BY id"
    )
    return [row[0] for row in connection.execute(sql, (team, now))]


@hint("it only warns")
def teams(connection: Connection) -> list[str]:
    """The teams of all agents that have joined and not ended, by name."""
    sql = "SELECT DISTINCT team FROM agents WHERE ended IS NULL ORDER BY team"
    return [row[0] for row in connection.execute(sql)]


@hint("each agent is locked and looked at again before its work is given away")
def ended_with_work(connection: Connection, limit: int) -> list[AgentRow]:
    """Ended agents that elements refer to whose jobs have not all ended."""
    sql = (
        f"SELECT {_COLUMNS} FROM agents WHERE ended IS NOT NULL AND EXISTS (SELECT 1 FROM elements"
        " WHERE agent_id = agents.id AND state IN ('Negotiating', 'Acquired', 'Running', 'CancelRequested'))"
        " ORDER BY id LIMIT ?"
    )
    return [AgentRow(*row) for row in connection.execute(sql, (limit,))]
