"""Pilots: their rows, their tokens, their leases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pilotage.core.ids import PilotId
from pilotage.core.pilots.states import PilotState
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list, lock_clause


@dataclass(slots=True)
class PilotRow:
    """A pilot as the server's memory keeps it while it lives; the row in the store is the truth."""

    id: PilotId
    stamp: str
    secret_hash: str
    idx: int
    nonce: str | None
    token_hash: str | None
    state: PilotState
    site: str
    ce: str
    only_owner: str | None
    pilot_type: str
    owner: str
    group: str
    batch_id: str
    hostname: str
    version: str
    processors: int
    memory: int
    lease_until: float | None
    take_number: int
    jobs: list[int]
    """What it was offered: all that it has are there, and some that it has no longer."""
    submitted: float
    started: float | None
    ended: float | None
    leave: str
    reason: str
    server: str = ""


_COLUMNS = (
    "id, stamp, secret_hash, idx, nonce, token_hash, state, site, ce, only_owner, pilot_type, owner, grp, batch_id,"
    " hostname, version, processors, memory, lease_until, take_number, jobs, submitted, started, ended, leave, reason,"
    " server"
)
_JOBS, _STATE = ([name.strip() for name in _COLUMNS.split(",")].index(name) for name in ("jobs", "state"))
_CHANGEABLE = frozenset(
    [
        "nonce",
        "token_hash",
        "state",
        "only_owner",
        "batch_id",
        "hostname",
        "version",
        "lease_until",
        "take_number",
        "started",
        "ended",
        "leave",
        "reason",
        "server",
    ]
)


_STATES = {str(state): state for state in PilotState}


def _to_pilot(row: tuple[Any, ...]) -> PilotRow:
    pilot = PilotRow(*row)
    pilot.state = _STATES[row[_STATE]]
    pilot.jobs = json.loads(row[_JOBS])
    return pilot


def insert(
    connection: Connection,
    *,
    stamp: str,
    secret_hash: str,
    idx: int,
    site: str,
    ce: str,
    only_owner: str | None,
    pilot_type: str,
    processors: int,
    memory: int,
    now: float,
    id_: int | None = None,
    batch_id: str = "",
    lease_until: float | None = None,
) -> PilotId:
    """The intent: stored before anything is started. `id_`: one that nobody else has; None: the next one.

    `batch_id`: what is known of it before the start. `lease_until`: when the intent runs out.
    """
    sql = (
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, only_owner, pilot_type, processors, memory,"
        " submitted, batch_id, lease_until) VALUES (coalesce(?, (SELECT coalesce(max(known), 0) + 1 FROM"
        " (SELECT max(id) AS known FROM pilots UNION ALL SELECT id_floor FROM instance) AS given)),"
        " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
    )
    values = (
        id_,
        stamp,
        secret_hash,
        idx,
        str(PilotState.SUBMITTED),
        site,
        ce,
        only_owner,
        pilot_type,
        processors,
        memory,
        now,
        batch_id,
        lease_until,
    )
    return PilotId(connection.execute(sql, values).fetchone()[0])


def last_id(connection: Connection) -> int:
    """The highest id of a pilot; 0: there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM pilots").fetchone()[0])


def by_id(connection: Connection, pilot: PilotId) -> PilotRow | None:
    return _select_one(connection, "id = ?", (pilot,))


def by_token(connection: Connection, token_hash: str) -> PilotRow | None:
    return _select_one(connection, "token_hash = ?", (token_hash,))


def by_tokens(connection: Connection, token_hashes: Sequence[str]) -> list[PilotRow]:
    """The pilots that have these tokens; no other server answers them before this transaction ends."""
    condition, value = in_list(connection, "token_hash", token_hashes)
    sql = f"SELECT {_COLUMNS} FROM pilots WHERE {condition} ORDER BY id" + lock_clause(connection, "UPDATE")
    return [_to_pilot(row) for row in connection.execute(sql, (value,))]


def by_secret(connection: Connection, secret_hash: str, idx: int) -> PilotRow | None:
    """Locked as by `by_tokens`."""
    where = "secret_hash = ? AND idx = ?" + lock_clause(connection, "UPDATE")
    return _select_one(connection, where, (secret_hash, idx))


def _select_one(connection: Connection, where: str, values: tuple[Any, ...]) -> PilotRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM pilots WHERE {where}", values).fetchone()
    return _to_pilot(row) if row else None


def live(connection: Connection, ce: str | None = None) -> list[PilotRow]:
    """Pilots that have not ended."""
    where, values = ("ended IS NULL", ()) if ce is None else ("ended IS NULL AND ce = ?", (ce,))
    return [
        _to_pilot(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM pilots WHERE {where}", values)
    ]


class LivePilot(NamedTuple):
    """What is asked of every live pilot each second, or so."""

    id: PilotId
    ce: str
    state: str
    server: str


def live_pilots(connection: Connection) -> list[LivePilot]:
    """The live pilots of all CEs."""
    return [
        LivePilot(*row)
        for row in connection.execute("SELECT id, ce, state, server FROM pilots WHERE ended IS NULL")
    ]


class SubmittedPilot(NamedTuple):
    """What its batch system is asked about."""

    id: PilotId
    stamp: str
    batch_id: str
    submitted: float
    started: float | None
    """When it called home first."""


def with_batch_jobs(connection: Connection, ce: str) -> list[SubmittedPilot]:
    """The live pilots of a CE."""
    sql = "SELECT id, stamp, batch_id, submitted, started FROM pilots WHERE ended IS NULL AND ce = ?"
    return [SubmittedPilot(*row) for row in connection.execute(sql, (ce,))]


def live_counts(connection: Connection) -> list[tuple[str, str, int]]:
    """(site, CE, how many live pilots)."""
    sql = "SELECT site, ce, count(*) FROM pilots WHERE ended IS NULL GROUP BY site, ce"
    return sorted((site, ce, count) for site, ce, count in connection.execute(sql))


def update(connection: Connection, pilot: PilotId, **changes: Any) -> None:
    """Write some columns of one pilot."""
    unknown = changes.keys() - _CHANGEABLE
    if unknown:
        raise ValueError(f"not changeable: {unknown}")
    columns = ", ".join(f"{column} = ?" for column in changes)
    values = [str(value) if isinstance(value, PilotState) else value for value in changes.values()]
    connection.execute_later(f"UPDATE pilots SET {columns} WHERE id = ?", (*values, pilot))


class Taken(NamedTuple):
    """The last take of a pilot that was answered with an offer, and whom it is bound to from then on."""

    number: int
    only_owner: str | None
    at: float
    jobs: str
    """JSON list of what it has."""
    pilot: PilotId


_TAKEN = bulk_statements.update(
    "pilots",
    ("take_number", "only_owner", "taken_at", "jobs", "id"),
    "take_number = {take_number}, only_owner = {only_owner}, taken_at = {taken_at}, jobs = {jobs}",
    "id = {id}",
)


def save_taken(connection: Connection, takes: Sequence[tuple[Any, ...]]) -> None:
    """`takes`: values of `Taken`."""
    connection.execute_bulk_later(_TAKEN, takes)


def add_finished(connection: Connection, pilot: PilotId, jobs: int) -> None:
    connection.execute_later("UPDATE pilots SET finished = finished + ? WHERE id = ?", (jobs, pilot))


_LEASE_EXPIRED = (
    "ended IS NULL AND lease_until < ? AND NOT EXISTS"
    " (SELECT 1 FROM servers s WHERE s.name = pilots.server AND s.name <> ? AND s.alive_at < pilots.lease_until)"
)


def with_expired_lease(connection: Connection, now: float, server: str, most: int) -> list[PilotId]:
    """Live pilots whose lease is over, at most so many; `server` is the one that asks.

    The lease of a pilot that speaks to another server is over only when that one has been alive after its end: until
    then nobody could have renewed it.
    """
    sql = f"SELECT id FROM pilots WHERE {_LEASE_EXPIRED} ORDER BY lease_until LIMIT ?"
    return [PilotId(row[0]) for row in connection.execute(sql, (now, server, most))]


def lock_expired(connection: Connection, pilot: PilotId, now: float, server: str) -> PilotRow | None:
    """One of `with_expired_lease`, locked; None if that is no longer so, or a server is just hearing it."""
    where = f"id = ? AND {_LEASE_EXPIRED}" + lock_clause(connection, "UPDATE SKIP LOCKED")
    return _select_one(connection, where, (pilot, now, server))


def last_take_times(connection: Connection) -> list[tuple[PilotId, float]]:
    """Of the live pilots that may have jobs: when their last take was answered."""
    sql = "SELECT id, taken_at FROM pilots WHERE ended IS NULL AND jobs <> '[]' ORDER BY taken_at"
    return [(PilotId(pilot), at or 0.0) for pilot, at in connection.execute(sql)]


def extend_leases_of_server(connection: Connection, server: str, seconds: float) -> None:
    """Of the pilots that speak to one server."""
    sql = "UPDATE pilots SET lease_until = lease_until + ? WHERE ended IS NULL AND lease_until IS NOT NULL"
    connection.execute(f"{sql} AND server = ?", (seconds, server))


def extend_leases(connection: Connection, seconds: float) -> None:
    """After an outage or a step of the clock."""
    connection.execute(
        "UPDATE pilots SET lease_until = lease_until + ? WHERE ended IS NULL AND lease_until IS NOT NULL",
        (seconds,),
    )
    connection.execute(
        "UPDATE pilots SET taken_at = taken_at + ? WHERE ended IS NULL AND taken_at IS NOT NULL", (seconds,)
    )
