"""Offsets of the nodes' clocks, as pilots reported them when they called home."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.tables.ces import RECENT_PILOTS


class NodeOffset(NamedTuple):
    """The last report about a node."""

    node: str
    offset: float
    """Seconds that the node is ahead of the server."""
    at: float


def last_offset(connection: Connection, ce: str, node: str) -> float | None:
    """The last reported offset of a node; None: there is no report."""
    sql = (
        "SELECT clock_offset FROM pilots WHERE hostname = ? AND started IS NOT NULL AND ce = ?"
        " AND clock_offset IS NOT NULL ORDER BY started DESC LIMIT 1"
    )
    row = connection.execute(sql, (node, ce)).fetchone()
    return None if row is None else float(row[0])


def last_offsets(connection: Connection, ce: str) -> list[NodeOffset]:
    """The last report about each node of a CE, among the pool's recent pilots."""
    sql = (
        "SELECT hostname, clock_offset, started FROM (SELECT * FROM pilots ORDER BY id DESC LIMIT ?) AS recent"
        " WHERE ce = ? AND started IS NOT NULL AND clock_offset IS NOT NULL ORDER BY started, id"
    )
    nodes = {row[0]: NodeOffset(*row) for row in connection.execute(sql, (RECENT_PILOTS, ce))}
    return list(nodes.values())
