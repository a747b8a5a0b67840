"""The servers that use one database: registration, heartbeats and eviction."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.store.cluster import changes, duty_leases
from pilotage.store.engine.connection import Connection, database_time, lock_clause
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.engine.rows import columns, insertion, values


@dataclass(frozen=True, slots=True)
class ServerRow:
    name: str
    host: str
    url: str
    version: str
    started: float
    alive_at: float
    policy_version: int
    pilot_url: str = ""
    """The address for pilots; empty: not announced yet."""
    fingerprints: str = ""
    """Fingerprints of its certificates, separated by commas. Empty: a CA vouches for it, or it has no TLS."""
    recorded: bool = False
    """It records its messages, so it must stay the only server."""


_COLUMNS = columns(ServerRow)


@overwrites("only the first server of a restored database finds such rows")
def register(connection: Connection, server: ServerRow) -> None:
    """Insert the row of a starting server. Without other servers, all change rows are deleted first."""
    if connection.dialect != "sqlite" and not live(connection):
        changes.delete_all(connection)
    connection.execute(insertion("servers", _COLUMNS), values(server))


@hint("a server that is evicted meanwhile can commit nothing")
def live(connection: Connection) -> list[ServerRow]:
    """All servers with a row, by start time."""
    return [
        ServerRow(*row)
        for row in connection.execute(f"SELECT {_COLUMNS} FROM servers ORDER BY started, name")
    ]


@overwrites("each server changes its own row")
def heartbeat(connection: Connection, name: str, now: float, policy_version: int) -> bool:
    """Store a heartbeat; False: the other servers have evicted this server."""
    sql = "UPDATE servers SET alive_at = ?, policy_version = ? WHERE name = ?"
    return connection.execute(sql, (database_time(connection, now), policy_version, name)).rowcount == 1


def add_outage(connection: Connection, seconds: float, but: str) -> None:
    """Move the heartbeats of the other servers by an outage, so that nobody counts this time as their silence."""
    connection.execute("UPDATE servers SET alive_at = alive_at + ? WHERE name <> ?", (seconds, but))


@overwrites("each server changes its own row")
def save_policy_version(connection: Connection, name: str, version: int) -> None:
    """Store the policy version in force on a server."""
    connection.execute("UPDATE servers SET policy_version = ? WHERE name = ?", (version, name))


def announce(connection: Connection, name: str, pilot_url: str, fingerprints: str) -> None:
    """Store the address of a server for pilots, and the fingerprints of its certificates."""
    sql = "UPDATE servers SET pilot_url = ?, fingerprints = ? WHERE name = ?"
    connection.execute(sql, (pilot_url, fingerprints, name))


def lock_silent(connection: Connection, before: float, but: str) -> list[str]:
    """Lock and return servers without a heartbeat since `before`, except servers that are writing now."""
    sql = "SELECT name FROM servers WHERE alive_at < ? AND name <> ? ORDER BY name"
    rows = connection.execute(sql + lock_clause(connection, "UPDATE SKIP LOCKED"), (before, but))
    return [row[0] for row in rows]


@hint("a server that returns at an address replaces the one before it")
def predecessors(connection: Connection, server: ServerRow) -> list[str]:
    """Servers with the address of `server`: they have ended, although their rows exist."""
    sql = "SELECT name FROM servers WHERE host = ? AND url = ? AND name <> ?"
    return [row[0] for row in connection.execute(sql, (server.host, server.url, server.name))]


@overwrites("its row is locked, or the server leaves by itself")
def evict(connection: Connection, name: str) -> None:
    """Delete a server's row, which each of its transactions needs, and release its duties."""
    connection.execute("DELETE FROM servers WHERE name = ?", (name,))
    duty_leases.release(connection, name)
