"""The jobs that live pilots were offered or hold, and a comparison with the jobs that pilots say they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pilotage.core.ids import PilotId
from pilotage.core.jobs.states import JobState
from pilotage.store.engine.connection import Connection, array_literal, in_list, lock_in_order
from pilotage.store.engine.decisions import hint, overwrites
from pilotage.store.tables.jobs import BATCH_SIZE, JobRow, by_ids


class HeldReference(NamedTuple):
    """A pilot's claim to hold this try of a job."""

    job: int
    epoch: int
    pilot: PilotId


@hint("the job is locked and looked at again")
def not_held(connection: Connection, claims: Sequence[HeldReference]) -> set[int]:
    """The jobs among `claims` that the pilot does not hold with this epoch, unknown jobs included.

    The database compares, so that only differences are read. Nothing is locked.
    """
    if connection.dialect == "sqlite":
        sql = (
            "SELECT c.value ->> 0 FROM json_each(?) AS c LEFT JOIN jobs j ON j.id = c.value ->> 0"
            " WHERE j.epoch IS NOT c.value ->> 1 OR j.pilot_id IS NOT c.value ->> 2"
        )
        values: list[str] = [json.dumps(claims)]
    else:
        sql = (
            "SELECT c.job FROM unnest(?::bigint[], ?::bigint[], ?::bigint[]) AS c (job, epoch, pilot)"
            " LEFT JOIN jobs j ON j.id = c.job"
            " WHERE j.epoch IS DISTINCT FROM c.epoch OR j.pilot_id IS DISTINCT FROM c.pilot"
        )
        values = [array_literal(column, "bigint") for column in zip(*claims, strict=True)]
    return {row[0] for row in connection.execute(sql, values)}


def of_live_pilots(connection: Connection) -> Iterator[JobRow]:
    """All jobs that live pilots have been offered or hold."""
    lists = connection.execute("SELECT jobs FROM pilots WHERE ended IS NULL AND jobs <> '[]'").fetchall()
    # A released job is in the lists of both its former and its next pilot.
    ids = list(dict.fromkeys(job for row in lists for job in json.loads(row[0])))
    for begin in range(0, len(ids), BATCH_SIZE):
        for job in by_ids(connection, ids[begin : begin + BATCH_SIZE], for_update=False).values():
            if job.pilot is not None:
                yield job


@overwrites("an offer lives longer by the length of the outage, whatever it is")
def extend_offers(connection: Connection, seconds: float) -> None:
    """Extend the offers after an outage or a clock step."""
    offered = sorted(job.id for job in of_live_pilots(connection) if job.state is JobState.MATCHED)
    for begin in range(0, len(offered), BATCH_SIZE):
        condition, value = in_list(connection, "id", offered[begin : begin + BATCH_SIZE])
        lock_in_order(connection, "jobs", condition, (value,))
        sql = f"UPDATE jobs SET started = started + ? WHERE {condition} AND state = 'Matched'"
        connection.execute(sql, (seconds, value))


@hint("it fills the memory of a server that starts")
def stalled_pilots(connection: Connection) -> list[PilotId]:
    """Pilots with jobs in the state Stalled."""
    pilots = {job.pilot for job in of_live_pilots(connection) if job.state is JobState.STALLED}
    return [pilot for pilot in pilots if pilot is not None]
