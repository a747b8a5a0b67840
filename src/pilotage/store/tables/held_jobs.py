"""Compares the jobs that pilots say they hold with the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.ids import PilotId
from pilotage.store.engine.connection import Connection, array_literal


class HeldReference(NamedTuple):
    """A pilot's claim to hold this try of a job."""

    job: int
    epoch: int
    pilot: PilotId


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
