"""The attempts that ended in a period, for records of accounting."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.rows import columns
from pilotage.store.tables.usage import BEGAN, WALL


class AccountedRow(NamedTuple):
    """One attempt with its use. It has the first fields of `wire.accounting.AccountedAttempt`."""

    job: int
    epoch: int
    owner: str
    group: str
    site: str
    ce: str
    host: str
    started: float
    ended: float
    outcome: str
    exit_code: int | None
    wall: float
    cpu: float
    processors: int
    cpu_power: float
    max_rss: int


_COLUMNS = columns(
    AccountedRow,
    "a.",
    job="a.job_id",
    group="a.grp",
    ce="coalesce(p.ce, '')",
    host="coalesce(p.hostname, '')",
    outcome="coalesce(a.outcome, '')",
    wall="a.used_wall",
)


def page(
    connection: Connection,
    begin: float,
    end: float,
    after: tuple[float, int, int],
    limit: int,
    owner: str | None,
) -> list[AccountedRow]:
    """Attempts that ended in [begin, end), by end, job and epoch, beyond `after`. `owner` None: everybody's."""
    given = [max(begin, after[0]), end, *after, *([] if owner is None else [owner]), limit]
    sql = (
        f"SELECT {_COLUMNS} FROM (SELECT *, {WALL} AS used_wall FROM attempts"
        f" WHERE {BEGAN} AND ended >= ? AND ended < ? AND (ended, job_id, epoch) > (?, ?, ?)"
        f"{'' if owner is None else ' AND owner = ?'} ORDER BY ended, job_id, epoch LIMIT ?) a"
        " LEFT JOIN pilots p ON p.id = a.pilot_id ORDER BY a.ended, a.job_id, a.epoch"
    )
    return [AccountedRow(*row) for row in connection.execute(sql, given)]
