"""Queries of `pilotage why`, and the history of wait reasons of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilotage.core.ids import JobId, QueueId
from pilotage.store.engine.bulk_statements import delete, insert
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import SHOWN, hint
from pilotage.store.engine.rows import columns

KEPT_ROWS = 200
"""Rows of history kept for each queue."""


@hint(SHOWN)
def ces_with_pending_pilots(connection: Connection) -> list[str]:
    """CEs with pilots that were submitted and have not called yet."""
    sql = "SELECT DISTINCT ce FROM pilots WHERE ended IS NULL AND state IN ('Submitted', 'Waiting')"
    return [row[0] for row in connection.execute(sql)]


def pilot_states(connection: Connection, ce: str) -> dict[str, int]:
    """The number of live pilots of a CE by state."""
    sql = "SELECT state, count(*) FROM pilots WHERE ended IS NULL AND ce = ? GROUP BY state"
    return {row[0]: row[1] for row in connection.execute(sql, (ce,))}


def count_yielding_pilots(connection: Connection, ce: str) -> int:
    """The number of live pilots of a CE that leave because it is another owner's turn."""
    sql = "SELECT count(*) FROM pilots WHERE ended IS NULL AND ce = ? AND substr(leave, 1, 6) = 'share:'"
    return int(connection.execute(sql, (ce,)).fetchone()[0])


def count_ahead(
    connection: Connection, queue: QueueId, user_priority: int, job: JobId, most: int
) -> tuple[int, int]:
    """Waiting jobs of the queue: (higher UserPriority, equal UserPriority and lower id), each up to `most`."""
    higher = (
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 'Waiting' AND queue_id = ? AND user_priority > ?"
        " LIMIT ?)"
    )
    older = (
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 'Waiting' AND queue_id = ? AND user_priority = ?"
        " AND id < ? LIMIT ?)"
    )
    first = connection.execute(higher, (queue, user_priority, most)).fetchone()[0]
    second = connection.execute(older, (queue, user_priority, job, most)).fetchone()[0]
    return int(first), int(second)


def not_before(connection: Connection, job: JobId) -> float | None:
    """The time at which a rescheduled job returns to its queue."""
    row = connection.execute("SELECT not_before FROM jobs WHERE id = ?", (job,)).fetchone()
    return None if row is None else row[0]


class UnmadeJob(NamedTuple):
    """The submission of an accepted job that has no row yet."""

    submission: int
    owner: str
    group: str


def find_unmade_job(connection: Connection, job: int) -> UnmadeJob | None:
    """The submission of a job that is accepted and not created yet; None: there is none."""
    sql = (
        "SELECT s.id, s.owner, s.grp FROM submission_chunks c JOIN submissions s ON s.id = c.submission_id"
        " WHERE c.made < c.count AND c.first_job <= ? AND ? < c.first_job + c.count AND s.state <> 'staged'"
    )
    row = connection.execute(sql, (job, job)).fetchone()
    return None if row is None else UnmadeJob(*row)


def waiting_since(connection: Connection, queue: QueueId, before: Mapping[int, int]) -> float | None:
    """The submission time of the first waiting job of a queue.

    `before`: by UserPriority, an id below which no job waits. So the cost does not grow with the queue.
    """
    sql = (
        "SELECT id, submitted FROM jobs WHERE queue_id = ? AND user_priority = ? AND id >= ? AND state = 'Waiting'"
        " ORDER BY id LIMIT 1"
    )
    rows = (
        connection.execute(sql, (queue, priority, first)).fetchone() for priority, first in before.items()
    )
    return min(((row[0], float(row[1])) for row in rows if row), default=(0, None))[1]


# --- the history


class ReasonRow(NamedTuple):
    queue: QueueId
    since: float
    reason: str
    detail: str


_REASON = columns(ReasonRow, queue="queue_id")


_NOTED = insert("queue_reasons", ("queue_id", "since", "reason", "detail"))
_OLD = delete(
    "queue_reasons",
    ("queue_id", "kept"),
    "queue_id = {queue_id} AND id <= (SELECT other.id FROM queue_reasons other WHERE other.queue_id = {queue_id}"
    " ORDER BY other.id DESC LIMIT 1 OFFSET {kept})",
    kept="bigint",
)


def insert_reasons(connection: Connection, rows: Iterable[ReasonRow]) -> None:
    """Insert wait reasons, and delete the oldest rows of each queue beyond `KEPT_ROWS`."""
    written = list(rows)
    connection.execute_bulk(_NOTED, written)
    connection.execute_bulk(_OLD, [(row.queue, KEPT_ROWS) for row in written])


def history(connection: Connection, queue: QueueId, most: int) -> list[ReasonRow]:
    """The last `most` rows of a queue, oldest first."""
    sql = f"SELECT {_REASON} FROM queue_reasons WHERE queue_id = ? ORDER BY id DESC LIMIT ?"
    return [ReasonRow(*row) for row in connection.execute(sql, (queue, most))][::-1]


def last_reasons(connection: Connection) -> list[tuple[QueueId, str, str, float]]:
    """(queue, last reason, detail, begin of the current wait) for every queue."""
    sql = (
        "SELECT last.queue_id, last.reason, last.detail,"
        " coalesce((SELECT min(r.since) FROM queue_reasons r WHERE r.queue_id = last.queue_id AND r.id > coalesce("
        "(SELECT max(e.id) FROM queue_reasons e WHERE e.queue_id = last.queue_id AND e.reason = ''), 0)), last.since)"
        " FROM queue_reasons last WHERE last.id IN (SELECT max(id) FROM queue_reasons GROUP BY queue_id)"
    )
    return [(QueueId(row[0]), row[1], row[2], float(row[3])) for row in connection.execute(sql)]
