"""Attempts at jobs of requests whose outputs were refused, and the files that the catalogue names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.jobs.states import FINAL
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import decision

_FINAL = ", ".join(f"'{state}'" for state in sorted(map(str, FINAL)))


class RefusedAttempt(NamedTuple):
    """An attempt whose files no data set has, and never will."""

    job: int
    epoch: int
    dataset: str
    """A data set that its request writes."""


_REFUSED = (
    "SELECT a.job_id, a.epoch, d.name FROM attempts a JOIN {table} j ON j.id = a.job_id"
    " JOIN submissions s ON s.id = j.submission_id JOIN request_steps r ON r.request_id = s.request_id"
    " JOIN datasets d ON d.id = r.output_dataset OR d.id = r.log_dataset"
    " WHERE {jobs} AND a.ahead = 0 AND a.ended < ? AND CASE WHEN a.outcome = 'applied' THEN j.state = 'Failed'"
    f" ELSE a.outcome IS NOT NULL AND (j.epoch > a.epoch OR j.state IN ({_FINAL})) END"
)


@decision("an attempt that was refused stays so: epochs rise, and a job takes one result of an epoch")
def refused(connection: Connection, jobs: Sequence[int], before: float) -> list[RefusedAttempt]:
    """The attempts at these jobs that ended before an instant without a result that counts."""
    condition, value = in_list(connection, "a.job_id", jobs)
    parts = (_REFUSED.format(table=table, jobs=condition) for table in ("jobs", "history"))
    rows = connection.execute(" UNION ".join(parts), (value, before, value, before))
    return [RefusedAttempt(*row) for row in rows]


@decision("nothing registers files of refused attempts but a person, who may do so at any time")
def registered(connection: Connection, address: str, urls: Sequence[str]) -> set[str]:
    """These addresses below `address` that are files of a data set. All files there are looked at."""
    condition, value = in_list(connection, "r.prefix || '/' || f.name", urls)
    sql = (
        "SELECT DISTINCT r.prefix || '/' || f.name FROM replicas r JOIN files f ON f.block_id = r.block_id"
        f" WHERE substr(r.prefix, 1, CAST(? AS INTEGER)) = ? AND {condition}"
    )
    return {row[0] for row in connection.execute(sql, (len(address), address, value))}
