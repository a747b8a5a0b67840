"""Ends of jobs of requests, appended in the transaction of the end. The roll-up deletes each one that it has used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import ONE_SERVER, overwrites


class JobEnd(NamedTuple):
    """The end of the pool job of an element job."""

    element_job_id: int
    job_id: int
    state: str
    """A final state of jobs."""
    at: float
    exit_code: int | None
    failure: str
    """The failure that the pilot or the lease reports; empty: the job was done, or somebody ended it."""
    message: str
    wall: float = 0.0
    """Seconds that its last attempt ran; 0: not known."""
    tries: int = 1
    """Its failed tries in the pool, if it failed."""
    site: str = ""
    """The site of the pilot that ended it; empty: none did."""


append = RowWriter[JobEnd](insert("job_outcomes", JobEnd._fields))


class Outcome(NamedTuple):
    """A stored end."""

    id: int
    element_job: int
    job: int
    state: str
    at: float
    exit_code: int | None
    failure: str
    message: str
    wall: float
    tries: int
    site: str


def after(connection: Connection, last: int, most: int) -> list[Outcome]:
    """At most `most` stored ends with ids above `last`, oldest first."""
    sql = f"SELECT id, {', '.join(JobEnd._fields)} FROM job_outcomes WHERE id > ? ORDER BY id LIMIT ?"
    return [Outcome(*row) for row in connection.execute(sql, (last, most))]


def is_empty(connection: Connection) -> bool:
    return connection.execute("SELECT 1 FROM job_outcomes LIMIT 1").fetchone() is None


@overwrites(ONE_SERVER)
def delete(connection: Connection, ids: Sequence[int]) -> None:
    condition, value = in_list(connection, "id", ids)
    connection.execute(f"DELETE FROM job_outcomes WHERE {condition}", (value,))
