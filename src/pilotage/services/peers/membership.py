"""Servers join the others on their database, and leave or are evicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pilotage.core.errors import Conflict
from pilotage.services.pilots.leases import REGULAR_GAP
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.shared_limits import take_back_allocations
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import changes, servers
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import database_time
from pilotage.store.tables import instance, pilots
from pilotage.store.writer.transaction import Transaction

SILENT = 30.0
"""Seconds without a heartbeat after which a server is evicted."""


def join(
    tx: Transaction, server: ServerRow, *, in_common: tuple[str, str], monotonic: Callable[[], float]
) -> DatabasePeers:
    """Register a server that starts. `in_common`: marks of its signing key and of its sandboxes.

    Raises `Conflict` if the other live servers have another key or other sandboxes, or if one of them is recorded.
    """
    now = database_time(tx.connection, server.started)
    server = replace(server, started=now, alive_at=now)
    instance.lock_row(tx.connection)
    predecessors = servers.predecessors(tx.connection, server)
    registered = [other for other in servers.live(tx.connection) if other.name not in predecessors]
    # Without others the first heartbeat of this server credits the time since the last one of any server.
    last = _last_heartbeat(tx)
    in_service = registered and now - last <= REGULAR_GAP
    for predecessor in predecessors:
        evict_server(tx, predecessor, now if in_service else last)
    others = [other for other in registered if now - other.alive_at < SILENT]
    if not others:
        for silent in registered:
            evict_server(tx, silent.name, last)
    _refuse_company_of_record(server, others)
    theirs = instance.shared_fingerprints(tx.connection)
    if others and theirs != in_common:
        _refuse(others[0], key=theirs[0] != in_common[0])
    instance.save_shared_fingerprints(tx.connection, *in_common)
    servers.register(tx.connection, server)
    return DatabasePeers(
        server.name, position=changes.oldest_open_transaction(tx.connection), monotonic=monotonic
    )


def _refuse_company_of_record(server: ServerRow, others: Sequence[ServerRow]) -> None:
    """A record has the inputs of one server: the decisions of another one would be missing in it."""
    for other in others:
        at = f"the server at {other.url} of {other.host}, which uses the same database"
        if other.recorded:
            raise Conflict(
                f"a record has one server: {at}, is recorded",
                hint="stop it, and start it again without --record",
            )
        if server.recorded:
            raise Conflict(
                f"a record has one server, but there is {at}", hint="stop it, or leave --record out"
            )


def _refuse(other: ServerRow, *, key: bool) -> None:
    at = f"the server at {other.url} of {other.host}"
    if key:
        raise Conflict(
            f"this home signs tokens with another key than {at}, which uses the same database",
            hint="copy the file secrets/signing.key of its home into this one, and start again",
        )
    raise Conflict(
        f"the sandboxes of this server are not those of {at}, which uses the same database",
        hint="give both the same shared folder: --sandboxes FOLDER",
    )


def evict_silent(pool: Pool, tx: Transaction) -> list[str]:
    """Evict the servers without a heartbeat for `SILENT` seconds in which others had some; their names.

    The last heartbeat of all ends this time: if this server was away too, its own next one tells so.
    """
    instance.lock_row(tx.connection)
    last = _last_heartbeat(tx)
    silent = servers.lock_silent(tx.connection, last - SILENT, pool.peers.server)
    for name in silent:
        evict_server(tx, name, last)
    if silent:
        # This server takes back the offers of evicted servers that no pilot confirms.
        for pilot, at in pilots.unconfirmed_since(tx.connection):
            if pilot not in pool.pilots.unconfirmed:
                tx.put(pool.pilots.unconfirmed, pilot, at)
    return silent


def leave(tx: Transaction, name: str) -> None:
    """A server that stops leaves the others."""
    instance.lock_row(tx.connection)
    evict_server(tx, name, _last_heartbeat(tx))


def _last_heartbeat(tx: Transaction) -> float:
    """The last heartbeat of any server. The row of the instance is locked."""
    known = instance.load(tx.connection)
    assert known is not None
    return known.alive_at


def evict_server(tx: Transaction, name: str, until: float) -> None:
    """Free the allocations and duties of a server; its later transactions are refused.

    Its pilots could renew no lease at it since its last heartbeat. So their leases are extended by the time from then
    until `until`: other servers were there until then. An outage after that is credited to all leases.
    """
    take_back_allocations(tx, name)
    heartbeats = [server.alive_at for server in servers.live(tx.connection) if server.name == name]
    for alive_at in heartbeats:
        pilots.extend_leases_of_server(tx.connection, name, max(0.0, until - alive_at))
    servers.evict(tx.connection, name)
