"""Pilots that listings of their batch system lack, or that were given up and may come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.ids import PilotId
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


class PilotEnding(NamedTuple):
    """A pilot that has ended."""

    id: PilotId
    ended: float
    failed: bool
    """It was given up: it may come back."""
    jobs: str
    """JSON list of the jobs that it has, and maybe had."""


@hint("the director looks again at the next listing")
def ends_of(connection: Connection, stamps: Sequence[str]) -> dict[str, PilotEnding]:
    """The pilots with these stamps that have ended."""
    condition, value = in_list(connection, "stamp", stamps)
    sql = (
        "SELECT stamp, id, ended, CASE WHEN state = 'Failed' THEN 1 ELSE 0 END, jobs FROM pilots"
        f" WHERE {condition} AND ended IS NOT NULL"
    )
    return {
        row[0]: PilotEnding(row[1], row[2], bool(row[3]), row[4]) for row in connection.execute(sql, (value,))
    }


@hint("the director looks again at the next listing")
def may_bring_result(connection: Connection, pilot: PilotEnding) -> bool:
    """Whether a job that has not ended would take a result of this pilot: it was given to nobody else since."""
    if not pilot.failed:
        return False
    condition, value = in_list(connection, "a.job_id", json.loads(pilot.jobs))
    sql = (
        "SELECT 1 FROM attempts a JOIN jobs j ON j.id = a.job_id AND j.epoch = a.epoch AND j.final_state = ''"
        f" WHERE {condition} AND a.pilot_id = ? LIMIT 1"
    )
    return connection.execute(sql, (value, pilot.id)).fetchone() is not None


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
