"""Shared limits as rows: the unallocated part, and each server's allocation (core/queues/limit_leases.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from pilotage.core.errors import Overloaded
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.store.engine.bulk_statements import delete, insert, update
from pilotage.store.engine.connection import Connection, lock_clause
from pilotage.store.engine.decisions import decision, hint, overwrites

Key = tuple[str, str, str, str]
"""Site, CE, attribute, value."""


def key_to_text(key: Key) -> str:
    return json.dumps(key)


def key_from_text(text: str) -> Key:
    site, ce, attribute, value = json.loads(text)
    return (site, ce, attribute, value)


@hint("each limit is locked before places are taken")
def states(connection: Connection, *, lock: bool = False) -> dict[Key, UnleasedRoom]:
    """Every limit. `lock`: no other transaction changes the limits until this transaction ends."""
    sql = "SELECT limit_key, running, free, starts, since FROM limit_states ORDER BY limit_key"
    rows = connection.execute(sql + (lock_clause(connection, "UPDATE") if lock else "")).fetchall()
    return {key_from_text(text): UnleasedRoom(*values) for text, *values in rows}


def allocations(connection: Connection) -> dict[Key, dict[str, Allocation]]:
    """The allocations of all servers, by limit."""
    sql = "SELECT limit_key, server, free, starts, last_start, wants FROM limit_blocks"
    by_key: dict[Key, dict[str, Allocation]] = {}
    for text, server, free, starts, last, wants in connection.execute(sql):
        by_key.setdefault(key_from_text(text), {})[server] = Allocation(free, starts, last, bool(wants))
    return by_key


@decision("only its server changes an allocation that is not revoked")
def allocations_of(connection: Connection, server: str) -> dict[Key, Allocation]:
    """The allocations of one server, by limit."""
    sql = "SELECT limit_key, free, starts, last_start, wants FROM limit_blocks WHERE server = ?"
    return {
        key_from_text(text): Allocation(free, starts, last, bool(wants))
        for text, free, starts, last, wants in connection.execute(sql, (server,))
    }


_STATES = insert(
    "limit_states",
    ("limit_key", "running", "free", "starts", "since"),
    conflict=("limit_key",),
    otherwise="UPDATE",
)
_GONE = delete("limit_states", ("limit_key",), "limit_key = {limit_key}")
_GONE_BLOCKS = delete("limit_blocks", ("limit_key",), "limit_key = {limit_key}")
_NEW_BLOCKS = insert(
    "limit_blocks", ("limit_key", "server"), conflict=("limit_key", "server"), otherwise="NOTHING"
)
_BLOCKS = update(
    "limit_blocks",
    ("free", "starts", "last_start", "wants", "limit_key", "server"),
    "free = {free}, starts = {starts}, last_start = {last_start}, wants = {wants}",
    "limit_key = {limit_key} AND server = {server}",
)


def save_states(connection: Connection, states: Mapping[Key, UnleasedRoom]) -> None:
    connection.execute_bulk(
        _STATES,
        [(key_to_text(key), s.running, s.free, s.starts, s.since) for key, s in sorted(states.items())],
    )


def delete_limits(connection: Connection, keys: Iterable[Key]) -> None:
    """Delete limits that the policy no longer has."""
    gone = [(key_to_text(key),) for key in sorted(keys)]
    connection.execute_bulk(_GONE_BLOCKS, gone)
    connection.execute_bulk(_GONE, gone)


def create_allocations(connection: Connection, server: str, keys: Iterable[Key]) -> None:
    """Insert an empty allocation of each limit for a server that has none."""
    connection.execute_bulk(_NEW_BLOCKS, [(key_to_text(key), server) for key in sorted(keys)])


@overwrites("only its server changes an allocation")
def save_allocations(connection: Connection, server: str, changed: Mapping[Key, Allocation]) -> None:
    """Store allocations of a server. Raises `Overloaded` if they were revoked, because it was evicted."""
    rows: Sequence[tuple[object, ...]] = [
        (b.free, b.starts, b.last_start, int(b.wants), key_to_text(key), server)
        for key, b in sorted(changed.items())
    ]
    if connection.execute_bulk(_BLOCKS, rows) != len(rows):
        raise Overloaded("this server has lost its part of a limit", hint="try again in a moment")


@overwrites("a server without its row changes no allocation")
def revoke(connection: Connection, server: str) -> dict[Key, Allocation]:
    """Delete and return the allocations of an evicted server."""
    sql = "DELETE FROM limit_blocks WHERE server = ? RETURNING limit_key, free, starts, last_start, wants"
    return {
        key_from_text(text): Allocation(free, starts, last, bool(wants))
        for text, free, starts, last, wants in connection.execute(sql, (server,)).fetchall()
    }
