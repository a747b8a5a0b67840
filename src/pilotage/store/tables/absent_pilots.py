"""Pilots that listings of their batch system lack, or that were given up and may come back."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import hint


@hint("the director looks again at the next listing")
def failed_among(connection: Connection, stamps: Sequence[str]) -> set[str]:
    """The subset of `stamps` whose pilots have failed: they may come back."""
    condition, value = in_list(connection, "stamp", stamps)
    sql = f"SELECT stamp FROM pilots WHERE {condition} AND state = 'Failed'"
    return {row[0] for row in connection.execute(sql, (value,))}


def ended_among(connection: Connection, stamps: Sequence[str]) -> set[str]:
    """The subset of `stamps` whose pilots have ended."""
    condition, value = in_list(connection, "stamp", stamps)
    sql = f"SELECT stamp FROM pilots WHERE {condition} AND ended IS NOT NULL"
    return {row[0] for row in connection.execute(sql, (value,))}


@hint("the director looks again at the next listing")
def last_contradiction(connection: Connection, ce: str) -> float | None:
    """The latest `absent_since` of the live pilots of a CE that have called home; None: no such pilot is absent."""
    sql = "SELECT max(absent_since) FROM pilots WHERE ended IS NULL AND ce = ? AND started IS NOT NULL"
    latest = connection.execute(sql, (ce,)).fetchone()[0]
    return None if latest is None else float(latest)


def counts(connection: Connection) -> dict[str, int]:
    """CE → live pilots that the last complete listing lacks."""
    sql = "SELECT ce, count(*) FROM pilots WHERE ended IS NULL AND absent_since IS NOT NULL GROUP BY ce"
    return {ce: int(count) for ce, count in connection.execute(sql)}
