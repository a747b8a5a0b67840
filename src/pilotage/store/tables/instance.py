"""The instance: its id, incarnation and heartbeat, and the versions of its policy."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.store.engine.connection import Connection, has_table, lock_clause
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.engine.rows import columns


@dataclass(frozen=True, slots=True)
class Instance:
    uuid: str
    incarnation: int
    alive_at: float
    id_floor: int = 0


_INSTANCE = columns(Instance)


@hint("what is decided on is read again under the lock of the row")
def load(connection: Connection) -> Instance | None:
    row = connection.execute(f"SELECT {_INSTANCE} FROM instance WHERE id = 1").fetchone()
    return Instance(*row) if row else None


def create(connection: Connection, uuid: str, now: float) -> Instance:
    connection.execute(
        "INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, ?, 1, ?)", (uuid, now)
    )
    return Instance(uuid, 1, now)


def lock_row(connection: Connection) -> None:
    """Lock the row of the instance until this transaction ends: other servers wait here."""
    connection.execute("SELECT 1 FROM instance WHERE id = 1" + lock_clause(connection, "UPDATE"))


def shared_fingerprints(connection: Connection) -> tuple[str, str]:
    """Fingerprints of the signing key and of the sandbox folder, which all servers share."""
    row = connection.execute("SELECT signing_key, sandboxes FROM instance WHERE id = 1").fetchone()
    return row[0], row[1]


def save_shared_fingerprints(connection: Connection, signing_key: str, sandboxes: str) -> None:
    connection.execute(
        "UPDATE instance SET signing_key = ?, sandboxes = ? WHERE id = 1", (signing_key, sandboxes)
    )


def heartbeat(connection: Connection, now: float) -> None:
    connection.execute("UPDATE instance SET alive_at = ? WHERE id = 1", (now,))


def write_unchanged(connection: Connection) -> None:
    """Write without a change, to test whether the database can be written."""
    connection.execute("UPDATE instance SET incarnation = incarnation WHERE id = 1")


def highest_id(connection: Connection) -> int:
    """The highest id that is used or must not be given again. Works with every schema since the first."""
    tables = ["submissions", "jobs", "pilots", "events"]
    if has_table(connection, "history"):
        tables.append("history")
    given = [("max(first_job + count - 1)", "submissions"), ("max(id_floor)", "instance")]
    given += [("max(id)", table) for table in tables]
    if has_table(connection, "submission_chunks"):
        given.append(("max(first_job + count - 1)", "submission_chunks"))
        given.append(("max(first_job + expected - 1)", "submissions"))
    if has_table(connection, "counters"):
        given.append(("max(last)", "counters WHERE name IN ('events', 'jobs', 'submissions', 'pilots')"))
    each = " UNION ALL ".join(f"SELECT {highest} AS highest FROM {table}" for highest, table in given)
    return int(connection.execute(f"SELECT coalesce(max(highest), 0) FROM ({each}) AS of_each").fetchone()[0])


def begin_incarnation(connection: Connection, incarnation: int, id_floor: int) -> None:
    """Start a new incarnation after a restore: earlier messages are superseded, and no id is given twice."""
    sql = "UPDATE instance SET incarnation = ?, id_floor = ? WHERE id = 1"
    connection.execute(sql, (incarnation, id_floor))


@overwrites("no server uses the database")
def become_another(connection: Connection, uuid: str) -> None:
    """Make a copied database that of a new instance: no token and no message of the other one is valid here."""
    sql = "UPDATE instance SET uuid = ?, incarnation = incarnation + 1, signing_key = '', sandboxes = '' WHERE id = 1"
    connection.execute(sql, (uuid,))


@dataclass(frozen=True, slots=True)
class PolicyRow:
    version: int
    text: str
    applied_at: float
    applied_by: str
    reason: str


_POLICY = columns(PolicyRow)


def current_policy(connection: Connection) -> PolicyRow | None:
    row = connection.execute(f"SELECT {_POLICY} FROM policies ORDER BY version DESC LIMIT 1").fetchone()
    return PolicyRow(*row) if row else None


def policy_version(connection: Connection, version: int) -> PolicyRow | None:
    sql = f"SELECT {_POLICY} FROM policies WHERE version = ?"
    row = connection.execute(sql, (version,)).fetchone()
    return PolicyRow(*row) if row else None


def policy_versions(connection: Connection, after: int, limit: int) -> list[PolicyRow]:
    """Versions below `after`, newest first, without their texts; 0 begins at the newest."""
    sql = (
        "SELECT version, '', applied_at, applied_by, reason FROM policies WHERE ? = 0 OR version < ?"
        " ORDER BY version DESC LIMIT ?"
    )
    return [PolicyRow(*row) for row in connection.execute(sql, (after, after, limit))]


def save_policy(connection: Connection, *, text: str, now: float, by: str, reason: str) -> int:
    # No sequence: on PostgreSQL a rolled-back transaction would leave a gap.
    sql = (
        "INSERT INTO policies (version, text, applied_at, applied_by, reason)"
        " VALUES ((SELECT coalesce(max(version), 0) + 1 FROM policies), ?, ?, ?, ?) RETURNING version"
    )
    return int(connection.execute(sql, (text, now, by, reason)).fetchone()[0])
