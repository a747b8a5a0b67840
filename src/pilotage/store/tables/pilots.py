"""Rows of pilots: tokens, leases and takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.states import PilotState
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, in_list, lock_clause, lock_in_order
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.engine.rows import columns


@dataclass(slots=True)
class PilotRow:
    """A pilot. The server keeps live pilots in memory; the row in the database is authoritative."""

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
    """Offered jobs: a superset of the jobs that the pilot has."""
    submitted: float
    started: float | None
    ended: float | None
    leave: str
    reason: str
    server: str = ""
    wall: float = 0.0
    """Seconds that the batch system was asked for; 0: the wall time in the policy."""
    cores_from: float | None = None
    """When its batch job began; None: not known."""
    absent_since: float | None = None
    """Since when complete listings lack its batch job, or its last sign of life since then; None: the last has it."""

    @property
    def submission_stamp(self) -> str:
        return self.stamp.partition("/")[0]


_COLUMNS = columns(PilotRow, group="grp")
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
        "log",
        "cores_from",
        "cores_until",
        "silent_from",
        "silent_until",
        "clock_offset",
        "absent_since",
        "jobs",
    ]
)
_RUNS = "ended IS NULL AND state = 'Running'"
_STATES = {str(state): state for state in PilotState}


def _to_pilot(row: tuple[Any, ...]) -> PilotRow:
    pilot = PilotRow(*row)
    pilot.state = _STATES[row[_STATE]]
    # Most rows of a listing have no jobs, and the call costs as much as the rest.
    pilot.jobs = [] if row[_JOBS] == "[]" else json.loads(row[_JOBS])
    return pilot


class NewPilot(NamedTuple):
    """The intent to start a pilot."""

    id: int | None
    """An id that is not used; None: the next one."""
    stamp: str
    secret_hash: str
    idx: int
    site: str
    ce: str
    only_owner: str | None
    pilot_type: str
    processors: int
    memory: int
    submitted: float
    batch_id: str = ""
    """The part known before the start."""
    lease_until: float | None = None
    """The end of the intent."""
    wall: float = 0.0
    """Seconds that the batch system is asked for; 0: the wall time in the policy."""
    owner: str = ""
    group: str = ""
    """With `owner` the identity under which it is submitted."""
    queue: QueueId | None = None
    """The queue that it is for."""
    state: str = PilotState.SUBMITTED.value


_INSERT = (
    f"INSERT INTO pilots ({columns(NewPilot, group='grp', queue='queue_id')}) VALUES"
    " (coalesce(?, (SELECT coalesce(max(known), 0) + 1 FROM"
    " (SELECT max(id) AS known FROM pilots UNION ALL SELECT id_floor FROM instance) AS given))"
    f"{', ?' * (len(NewPilot._fields) - 1)}) RETURNING id"
)


def insert(connection: Connection, pilot: NewPilot) -> PilotId:
    """Store the intent to start a pilot, before anything is started; returns its id."""
    return PilotId(connection.execute(_INSERT, pilot).fetchone()[0])


@hint("ids of all servers are taken from one counter")
def last_id(connection: Connection) -> int:
    """The highest id of a pilot; 0: there is no pilot."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM pilots").fetchone()[0])


@hint("the jobs of the pilot are locked and decide")
def by_id(connection: Connection, pilot: PilotId) -> PilotRow | None:
    return _select_one(connection, "id = ?", (pilot,))


def by_ids(connection: Connection, pilots: Sequence[PilotId]) -> list[PilotRow]:
    """The pilots with these ids, locked until the transaction ends."""
    return _lock(connection, *in_list(connection, "id", list(pilots)))


def sent_log(connection: Connection, pilot: PilotId) -> str:
    """The output that a pilot sent when it left."""
    row = connection.execute("SELECT log FROM pilots WHERE id = ?", (pilot,)).fetchone()
    return str(row[0]) if row else ""


def live_ids(connection: Connection, ce: str, after: int, most: int) -> list[PilotId]:
    """At most `most` live pilots of a CE with ids above `after`, by id."""
    sql = "SELECT id FROM pilots WHERE ended IS NULL AND ce = ? AND id > ? ORDER BY id LIMIT ?"
    return [PilotId(row[0]) for row in connection.execute(sql, (ce, after, most))]


@hint("the director counts again in its next cycle")
def read_by_ids(connection: Connection, ids: Sequence[PilotId]) -> list[PilotRow]:
    """The pilots with these ids, without a lock."""
    if not ids:
        return []
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT {_COLUMNS} FROM pilots WHERE {condition} ORDER BY id"
    return [_to_pilot(row) for row in connection.execute(sql, (value,))]


def by_token(connection: Connection, token_hash: str) -> PilotRow | None:
    return _select_one(connection, "token_hash = ?", (token_hash,))


def by_tokens(connection: Connection, token_hashes: Sequence[str]) -> list[PilotRow]:
    """The pilots with these tokens, locked: no other server answers them before this transaction ends."""
    return _lock(connection, *in_list(connection, "token_hash", token_hashes))


def _lock(connection: Connection, condition: str, value: Any) -> list[PilotRow]:
    sql = f"SELECT {_COLUMNS} FROM pilots WHERE {condition} ORDER BY id" + lock_clause(connection, "UPDATE")
    return [_to_pilot(row) for row in connection.execute(sql, (value,))]


def by_secret(connection: Connection, secret_hash: str, idx: int) -> PilotRow | None:
    """The pilot with this secret and index, locked as by `by_tokens`."""
    where = "secret_hash = ? AND idx = ?" + lock_clause(connection, "UPDATE")
    return _select_one(connection, where, (secret_hash, idx))


def _select_one(connection: Connection, where: str, values: tuple[Any, ...]) -> PilotRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM pilots WHERE {where}", values).fetchone()
    return _to_pilot(row) if row else None


@hint("the director counts again in its next cycle")
def live(connection: Connection, ce: str | None = None) -> list[PilotRow]:
    """Pilots that have not ended."""
    where, values = ("ended IS NULL", ()) if ce is None else ("ended IS NULL AND ce = ?", (ce,))
    sql = f"SELECT {_COLUMNS} FROM pilots WHERE {where}"
    return [_to_pilot(row) for row in connection.execute(sql, values)]


def of_submission(connection: Connection, stamps: Sequence[str]) -> list[PilotRow]:
    """The pilots with these stamps that have not ended, locked until the transaction ends."""
    condition, value = in_list(connection, "stamp", stamps)
    return _lock(connection, f"{condition} AND ended IS NULL", value)


class RunningPilot(NamedTuple):
    """The columns of a running pilot by which a server begins to listen to it."""

    ce: str
    id: PilotId
    server: str


_RUNNING_PILOT = columns(RunningPilot)


@hint("it fills the memory of a server that starts")
def running_after(connection: Connection, ce: str, pilot: int, most: int) -> list[RunningPilot]:
    """At most `most` running pilots after this place, in the order of CE and id."""
    sql = (
        f"SELECT {_RUNNING_PILOT} FROM pilots WHERE ended IS NULL AND state = 'Running' AND (ce, id) > (?, ?)"
        " ORDER BY ce, id LIMIT ?"
    )
    return [RunningPilot(*row) for row in connection.execute(sql, (ce, pilot, most))]


@hint("each pilot is locked and looked at again")
def servers_of_running(connection: Connection, pilots: Sequence[PilotId]) -> dict[PilotId, str]:
    """The server of the last message of each of these pilots. Pilots that do not run are left out."""
    condition, value = in_list(connection, "id", list(pilots))
    sql = f"SELECT id, server FROM pilots WHERE {_RUNS} AND {condition}"
    return {PilotId(row[0]): row[1] for row in connection.execute(sql, (value,))}


def lock_running(connection: Connection, pilots: Sequence[PilotId]) -> dict[PilotId, str]:
    """Lock the running ones of these pilots that no other server has locked; the server of each one's last message."""
    condition, value = in_list(connection, "id", list(pilots))
    sql = f"SELECT id, server FROM pilots WHERE {_RUNS} AND {condition} ORDER BY id"
    rows = connection.execute(sql + lock_clause(connection, "UPDATE SKIP LOCKED"), (value,))
    return {PilotId(row[0]): row[1] for row in rows}


class SubmittedPilot(NamedTuple):
    """The columns of a pilot that its batch system is queried with."""

    id: PilotId
    stamp: str
    batch_id: str
    submitted: float
    started: float | None
    """The time of the first call."""
    leave: str = ""


_SUBMITTED_PILOT = columns(SubmittedPilot)


def with_batch_jobs(connection: Connection, ce: str) -> list[SubmittedPilot]:
    """The live pilots of a CE."""
    sql = f"SELECT {_SUBMITTED_PILOT} FROM pilots WHERE ended IS NULL AND ce = ?"
    return [SubmittedPilot(*row) for row in connection.execute(sql, (ce,))]


def killed(connection: Connection, ce: str) -> list[PilotId]:
    """The live pilots of a CE that an administrator has killed."""
    sql = "SELECT id FROM pilots WHERE ended IS NULL AND leave <> '' AND leave = 'kill' AND ce = ?"
    return [PilotId(row[0]) for row in connection.execute(sql, (ce,))]


def live_counts(connection: Connection) -> list[tuple[str, str, int]]:
    """(site, CE, number of live pilots)."""
    sql = "SELECT site, ce, count(*) FROM pilots WHERE ended IS NULL GROUP BY site, ce"
    return sorted((site, ce, count) for site, ce, count in connection.execute(sql))


def update(connection: Connection, pilot: PilotId, **changes: Any) -> None:
    """Update columns of one pilot. Raises `ValueError` for a column that must not change."""
    unknown = changes.keys() - _CHANGEABLE
    if unknown:
        raise ValueError(f"not changeable: {unknown}")
    columns = ", ".join(f"{column} = ?" for column in changes)
    values = [str(value) if isinstance(value, PilotState) else value for value in changes.values()]
    connection.execute_later(f"UPDATE pilots SET {columns} WHERE id = ?", (*values, pilot))


@overwrites("no server uses the database")
def disown(connection: Connection, stamp: str, new: str) -> None:
    """Forget by which stamp, secret and token a pilot of another instance is known."""
    forgotten = "secret_hash = '', token_hash = NULL, nonce = NULL, batch_id = ''"
    sql = f"UPDATE pilots SET stamp = ?, {forgotten} WHERE stamp = ?"
    connection.execute(sql, (new, stamp))


def extend_cores(connection: Connection, stamp: str, until: float) -> None:
    """A pilot that has ended has its cores still: its batch job runs."""
    sql = "UPDATE pilots SET cores_until = ? WHERE stamp = ? AND ended IS NOT NULL AND cores_until < ?"
    connection.execute_later(sql, (until, stamp, until))


class AnsweredTake(NamedTuple):
    """The last take of a pilot that was answered with an offer, and the owner that it then serves."""

    number: int
    only_owner: str | None
    unconfirmed_since: float
    """A time that is not later than the first unconfirmed offer."""
    jobs: str
    """JSON list of the pilot's jobs."""
    pilot: PilotId


save_answered_takes = bulk_statements.RowWriter[tuple[Any, ...]](
    bulk_statements.update(
        "pilots",
        ("take_number", "only_owner", "taken_at", "jobs", "id"),
        "take_number = {take_number}, only_owner = {only_owner}, taken_at = {taken_at}, jobs = {jobs}",
        "id = {id}",
    )
)
"""The rows are values of `AnsweredTake`."""


@overwrites("it adds, so no order matters")
def add_finished(connection: Connection, pilot: PilotId, jobs: int) -> None:
    connection.execute_later("UPDATE pilots SET finished = finished + ? WHERE id = ?", (jobs, pilot))


_LEASE_EXPIRED = (
    "ended IS NULL AND lease_until < ? AND NOT EXISTS"
    " (SELECT 1 FROM servers s WHERE s.name = pilots.server AND s.name <> ? AND s.alive_at < pilots.lease_until)"
)


@hint("each pilot is locked and looked at again")
def with_expired_lease(connection: Connection, now: float, server: str, most: int) -> list[PilotId]:
    """At most `most` live pilots whose lease is over, as seen by the server `server`.

    The lease of another server's pilot is over only after a heartbeat of that server later than the lease's end.
    Before, no server could have renewed it.
    """
    sql = f"SELECT id FROM pilots WHERE {_LEASE_EXPIRED} ORDER BY lease_until LIMIT ?"
    return [PilotId(row[0]) for row in connection.execute(sql, (now, server, most))]


def lock_expired(connection: Connection, pilot: PilotId, now: float, server: str) -> PilotRow | None:
    """Lock a pilot of `with_expired_lease`; None: its lease was renewed, or another server has its row locked."""
    where = f"id = ? AND {_LEASE_EXPIRED}" + lock_clause(connection, "UPDATE SKIP LOCKED")
    return _select_one(connection, where, (pilot, now, server))


@hint("it fills the memory of a server that starts")
def unconfirmed_since(connection: Connection) -> list[tuple[PilotId, float]]:
    """Live pilots that may have jobs, each with a time that is not later than its first unconfirmed offer."""
    sql = "SELECT id, taken_at FROM pilots WHERE ended IS NULL AND jobs <> '[]' ORDER BY taken_at"
    return [(PilotId(pilot), at or 0.0) for pilot, at in connection.execute(sql)]


_EXTEND = (
    # Nobody heard a pilot meanwhile that could contradict its absence.
    "UPDATE pilots SET lease_until = lease_until + ?, absent_since = absent_since + ?"
    " WHERE ended IS NULL AND lease_until IS NOT NULL"
)


@overwrites("a lease grows by the length of the outage, whatever it is")
def extend_leases_of_server(connection: Connection, server: str, seconds: float) -> None:
    """Extend the leases of the pilots of one server."""
    lock_in_order(connection, "pilots", "ended IS NULL AND lease_until IS NOT NULL AND server = ?", (server,))
    connection.execute(f"{_EXTEND} AND server = ?", (seconds, seconds, server))


@overwrites("a lease grows by the length of the outage, whatever it is")
def extend_leases(
    connection: Connection, seconds: float, earliest: float, below: float | None = None
) -> None:
    """Move all leases and the times of takes, after an outage or a clock step.

    Leases that then end before `below` (None: before `earliest`) end at `earliest`.
    """
    lock_in_order(connection, "pilots", "ended IS NULL")
    connection.execute(_EXTEND, (seconds, seconds))
    sql = "UPDATE pilots SET lease_until = ? WHERE ended IS NULL AND lease_until < ?"
    connection.execute(sql, (earliest, earliest if below is None else below))
    sql = "UPDATE pilots SET taken_at = taken_at + ? WHERE ended IS NULL AND taken_at IS NOT NULL"
    connection.execute(sql, (seconds,))
