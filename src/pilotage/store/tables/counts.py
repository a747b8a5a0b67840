"""Counts of waiting jobs by queue and of held jobs by site and CE, from which indexes and limits are built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pilotage.core.ids import QueueId
from pilotage.store.cluster.changes import SNAPSHOT_SQL, TransactionSnapshot
from pilotage.store.engine.connection import Connection, in_list, json_numbers
from pilotage.store.engine.decisions import decision, hint
from pilotage.store.tables.held_jobs import of_live_pilots


def waiting_counts(connection: Connection) -> dict[QueueId, dict[int, int]]:
    """The number of waiting jobs by queue and UserPriority."""
    sql = "SELECT queue_id, user_priority, count(*) FROM jobs WHERE state = 'Waiting' GROUP BY queue_id, user_priority"
    counts: dict[QueueId, dict[int, int]] = {}
    for queue, weight, count in connection.execute(sql):
        counts.setdefault(QueueId(queue), {})[weight] = count
    return counts


@hint("the change rows since its snapshot correct it")
def waiting_between(connection: Connection, after: int, until: int) -> list[tuple[QueueId, int, int, int]]:
    """Waiting jobs with ids in (after, until]: (queue, UserPriority, count, first id)."""
    # The unary plus stops the planner from scanning the whole index of queues for its order.
    sql = (
        "SELECT +queue_id, +user_priority, count(*), min(id) FROM jobs"
        " WHERE id > ? AND id <= ? AND state = 'Waiting' GROUP BY 1, 2"
    )
    return connection.execute(sql, (after, until)).fetchall()


@hint("the change rows since its snapshot correct it")
def waiting_counts_of(connection: Connection, queue: QueueId) -> dict[int, int]:
    sql = "SELECT user_priority, count(*) FROM jobs WHERE state = 'Waiting' AND queue_id = ? GROUP BY user_priority"
    return dict(connection.execute(sql, (queue,)).fetchall())


@hint("the change rows since its snapshot correct it")
def waiting_counts_with_snapshot(
    connection: Connection, queues: Sequence[QueueId] | None = None
) -> tuple[TransactionSnapshot, dict[QueueId, dict[int, int]]]:
    """The `waiting_counts`, with the snapshot of the counting statement. `queues`: only these. PostgreSQL only."""
    among_these, values = "", []
    if queues is not None:
        condition, value = in_list(connection, "queue_id", queues)
        among_these, values = f" AND {condition}", [value]
    sql = (
        f"SELECT now.seen, c.* FROM (SELECT {SNAPSHOT_SQL} AS seen) AS now LEFT JOIN"
        " (SELECT queue_id, user_priority, count(*) AS n FROM jobs"
        f" WHERE state = 'Waiting'{among_these} GROUP BY queue_id, user_priority) AS c ON true"
    )
    rows = connection.execute(sql, values).fetchall()
    counts: dict[QueueId, dict[int, int]] = {}
    for _, queue, weight, count in rows:
        if queue is not None:
            counts.setdefault(QueueId(queue), {})[weight] = count
    return TransactionSnapshot.parse(rows[0][0]), counts


@hint("the change rows since its snapshot correct it")
def held_counts(connection: Connection) -> list[tuple[QueueId, str, str, int]]:
    """(queue, site, CE, number of jobs offered or held there), for the running limits."""
    places = {
        pilot: (site, ce)
        for pilot, site, ce in connection.execute("SELECT id, site, ce FROM pilots WHERE ended IS NULL")
    }
    counts: Counter[tuple[QueueId, str, str]] = Counter()
    for job in of_live_pilots(connection):
        if job.pilot in places:
            counts[(job.queue, *places[job.pilot])] += 1
    return [(*place, count) for place, count in counts.items()]


@decision("one statement over jobs and places, under the lock of the limits")
def held_counts_and_allocations(
    connection: Connection,
) -> tuple[list[tuple[QueueId, str, str, int]], dict[str, list[int]]]:
    """`held_counts`, and the free places allocated to servers by limit key, in one snapshot."""
    sql = (
        "SELECT j.queue_id, p.site, p.ce, count(DISTINCT j.id), NULL FROM pilots p CROSS JOIN LATERAL"
        f" ({json_numbers(connection, 'p.jobs')}) AS has (job) JOIN jobs j ON j.id = has.job AND j.pilot_id = p.id"
        " WHERE p.ended IS NULL AND p.jobs <> '[]' GROUP BY 1, 2, 3"
        " UNION ALL SELECT NULL, NULL, NULL, free, limit_key FROM limit_blocks"
    )
    held, blocks = [], dict[str, list[int]]()
    for queue, site, ce, count, key in connection.execute(sql):
        if key is None:
            held.append((QueueId(queue), site, ce, count))
        else:
            blocks.setdefault(key, []).append(count)
    return held, blocks
