"""Counts of live pilots that a director needs before an iteration. Each is one statement over indexed rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilotage.core.ids import PilotId, QueueId
from pilotage.store.engine.connection import Connection, in_list, json_numbers
from pilotage.store.engine.decisions import hint


class WaitingPilots(NamedTuple):
    """Equal pilots of one queue that have not called home."""

    queue: QueueId
    ce: str
    processors: int
    memory: int
    pilots: int


@hint("the demand is counted again in each cycle of the director")
def waiting_by_queue(connection: Connection, since: float) -> list[WaitingPilots]:
    """Pilots that were submitted after `since` and wait, from their intent on, by queue, CE and size."""
    sql = (
        "SELECT queue_id, ce, processors, memory, count(*) FROM pilots WHERE ended IS NULL AND started IS NULL"
        " AND queue_id IS NOT NULL AND submitted > ? GROUP BY queue_id, ce, processors, memory"
    )
    return [WaitingPilots(*row) for row in connection.execute(sql, (since,))]


class PilotsOfQueue(NamedTuple):
    """Live pilots that were submitted for one queue."""

    waiting: int
    running: int


def live_by_queue(connection: Connection, queues: Iterable[QueueId]) -> dict[QueueId, PilotsOfQueue]:
    """The live pilots that were submitted for these queues."""
    condition, value = in_list(connection, "queue_id", list(queues))
    sql = (
        "SELECT queue_id, sum(CASE WHEN started IS NULL THEN 1 ELSE 0 END), count(*) FROM pilots"
        f" WHERE ended IS NULL AND {condition} GROUP BY queue_id"
    )
    return {
        QueueId(queue): PilotsOfQueue(int(waiting), int(live - waiting))
        for queue, waiting, live in connection.execute(sql, (value,))
    }


def queue_of_pilot(connection: Connection, pilot: PilotId) -> tuple[QueueId, bool] | None:
    """The queue that a pilot was submitted for, and whether it still exists; None: the pilot has no queue."""
    sql = (
        "SELECT p.queue_id, q.id IS NOT NULL FROM pilots p LEFT JOIN queues q ON q.id = p.queue_id"
        " WHERE p.id = ? AND p.queue_id IS NOT NULL"
    )
    row = connection.execute(sql, (pilot,)).fetchone()
    return None if row is None else (QueueId(row[0]), bool(row[1]))


class FreePilotsRow(NamedTuple):
    """Equal pilots without a job that were not told to leave."""

    ce: str
    pilot_type: str
    owner: str | None
    """The only owner that they serve; None: they serve everybody."""
    group: str
    started: int
    waiting: int


@hint("the demand is counted again in each cycle of the director")
def free_pilots(connection: Connection, since: float) -> list[FreePilotsRow]:
    """The live pilots without a job, by CE, type and binding; waiting ones only if they were submitted since then."""
    has_job = (
        "EXISTS (SELECT 1 FROM jobs j WHERE j.pilot_id = p.id AND j.id IN"
        f" ({json_numbers(connection, 'p.jobs')}))"
    )
    sql = (
        "SELECT p.ce, p.pilot_type, p.only_owner, p.grp, sum(CASE WHEN p.started IS NULL THEN 0 ELSE 1 END),"
        " sum(CASE WHEN p.started IS NULL THEN 1 ELSE 0 END) FROM pilots p WHERE p.ended IS NULL AND p.leave = ''"
        " AND (p.started IS NOT NULL OR p.submitted >= ?)"
        f" AND (p.jobs = '[]' OR NOT {has_job}) GROUP BY p.ce, p.pilot_type, p.only_owner, p.grp"
    )
    return [FreePilotsRow(*row) for row in connection.execute(sql, (since,))]


def newest_waiting(
    connection: Connection, ce: str, pilot_type: str, owner: str | None, group: str | None, most: int
) -> list[PilotId]:
    """At most `most` pilots of a CE that wait and were not told to leave, the newest first.

    `owner`: the only owner that they serve; None: they serve everybody. `group`: None: any.
    """
    bound = "only_owner IS NULL" if owner is None else "only_owner = ?"
    of_group = "" if group is None else " AND grp = ?"
    sql = (
        "SELECT id FROM pilots WHERE ended IS NULL AND started IS NULL AND leave = '' AND ce = ? AND pilot_type = ?"
        f" AND {bound}{of_group} ORDER BY id DESC LIMIT ?"
    )
    names = [name for name in (owner, group) if name is not None]
    return [PilotId(row[0]) for row in connection.execute(sql, (ce, pilot_type, *names, most))]
