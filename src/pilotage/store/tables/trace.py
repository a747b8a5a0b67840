"""Which jobs ran where: pilots by batch id or by node and instant, and the attempts that they had."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pilotage.core.ids import PilotId
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.rows import columns
from pilotage.store.tables.attempts import SHOWN_OUTCOME

CLOCK_SLACK = 1.0
"""Seconds after a pilot's end within which its attempts have ended too."""


class TracedPilotRow(NamedTuple):
    """A pilot that ran there."""

    id: PilotId
    site: str
    ce: str
    batch_id: str
    hostname: str
    state: str
    started: float | None
    ended: float | None
    jobs: str
    """JSON list of the jobs that it has, and maybe had."""


class TracedAttempt(NamedTuple):
    """An attempt at a job in such a pilot. It has the fields of `wire.trace.TracedJob`."""

    job: int
    epoch: int
    owner: str
    group: str
    pilot: PilotId
    started: float
    ended: float | None
    outcome: str
    processors: int


_PILOT = columns(TracedPilotRow)
_ATTEMPT = columns(
    TracedAttempt, pilot="pilot_id", job="job_id", group="grp", outcome=SHOWN_OUTCOME.format(a="")
)


def pilots_of_batch_id(connection: Connection, batch_id: str) -> list[TracedPilotRow]:
    """The pilots of a batch job, or of all batch jobs of an array. Batch systems use ids again after some time."""
    rows = connection.execute(f"SELECT {_PILOT} FROM pilots WHERE batch_id = ?", (batch_id,)).fetchall()
    arrays = "SELECT stamp, pilots FROM pilot_submissions WHERE batch_id = ?"
    for stamp, count in connection.execute(arrays, (batch_id,)).fetchall():
        for index in range(count):
            sql = f"SELECT {_PILOT} FROM pilots WHERE stamp = ?"
            rows += connection.execute(sql, (f"{stamp}/{index}",)).fetchall()
    return sorted({TracedPilotRow(*row) for row in rows})


def pilots_at(connection: Connection, node: str, at: float) -> list[TracedPilotRow]:
    """The pilots that ran on a node at an instant."""
    sql = (
        f"SELECT {_PILOT} FROM pilots WHERE hostname = ? AND started <= ? AND (ended IS NULL OR ended >= ?)"
        " ORDER BY id"
    )
    return [TracedPilotRow(*row) for row in connection.execute(sql, (node, at, at))]


def attempts_of(
    connection: Connection, pilots: Sequence[TracedPilotRow], at: float | None, most: int
) -> list[TracedAttempt]:
    """The attempts that these pilots had, by start; at the instant `at` only, if it is given.

    Ended attempts are found by their end, which lies within the pilot's life; the others by the pilot's own list.
    """
    by_id = {pilot.id: pilot for pilot in pilots if pilot.started is not None}
    attempts: dict[tuple[int, int], TracedAttempt] = {}
    jobs = sorted({job for pilot in by_id.values() for job in json.loads(pilot.jobs)})
    if jobs:
        them, value = in_list(connection, "job_id", jobs)
        sql = f"SELECT {_ATTEMPT} FROM attempts WHERE {them}"
        _collect(attempts, connection.execute(sql, (value,)), by_id)
    if by_id:
        first = min(pilot.started or 0.0 for pilot in by_id.values())
        ends = [pilot.ended for pilot in by_id.values()]
        last = max(end for end in ends if end is not None) + CLOCK_SLACK if None not in ends else 1e12
        them, value = in_list(connection, "pilot_id", sorted(by_id))
        sql = f"SELECT {_ATTEMPT} FROM attempts WHERE ended >= ? AND ended <= ? AND {them} ORDER BY ended LIMIT ?"
        begin = first if at is None else max(first, at)
        _collect(attempts, connection.execute(sql, (begin, last, value, most)), by_id)
    traced = sorted(attempts.values(), key=lambda attempt: (attempt.started, attempt.job))
    if at is not None:
        traced = [a for a in traced if a.started <= at and (a.ended is None or a.ended >= at)]
    return traced[:most]


def _collect(
    attempts: dict[tuple[int, int], TracedAttempt],
    rows: Iterable[Sequence[Any]],
    by_id: dict[PilotId, TracedPilotRow],
) -> None:
    for row in rows:
        attempt = TracedAttempt(*row)
        if attempt.pilot in by_id:
            attempts[attempt.job, attempt.epoch] = attempt
