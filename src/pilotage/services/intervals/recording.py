"""Records waiting jobs by reason, and shares, in intervals of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pilotage.core.ids import QueueId
from pilotage.core.intervals import next_record, pieces
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.services.pool.records import RecordedReason
from pilotage.store.tables import intervals
from pilotage.store.tables.intervals import ALL_GROUPS, EVERYBODY, OTHER_GROUPS, ShareValues, WaitingCount
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.shares import ShareRow, ShareTable

MOST_OWNERS, MOST_GROUPS = 100, 100
"""Owners and groups with rows of their own in one record, which bounds its transaction. Jobs of all owners count in
the rows of their groups, and jobs of further groups in the row of `OTHER_GROUPS`."""
UNKNOWN = ""
"""The reason of a queue that has none on record yet."""


def count_waiting(
    queues: Iterable[IndexedQueue], reasons: Mapping[QueueId, RecordedReason]
) -> list[WaitingCount]:
    """The waiting jobs by reason: of each group, and of the owners with the most."""
    jobs, of_groups, of_owners = Counter[tuple[str, str, str]](), Counter[str](), Counter[str]()
    for queue in queues:
        if queue.waiting:
            recorded, identity = reasons.get(queue.id), queue.identity
            jobs[identity.owner, identity.group, UNKNOWN if recorded is None else recorded.reason] += (
                queue.waiting
            )
            of_groups[identity.group] += queue.waiting
            of_owners[identity.owner] += queue.waiting
    groups, owners = _most(of_groups, MOST_GROUPS), _most(of_owners, MOST_OWNERS)
    rows = Counter[tuple[str, str, str]]()
    for (owner, group, reason), number in jobs.items():
        rows[EVERYBODY, group if group in groups else OTHER_GROUPS, reason] += number
        if owner in owners:
            rows[owner, group, reason] += number
    return [WaitingCount(*key, rows[key]) for key in sorted(rows)]


def _most(jobs: Counter[str], most: int) -> frozenset[str]:
    """The names with the most jobs."""
    return frozenset(sorted(jobs, key=lambda name: (-jobs[name], name))[:most])


def share_values(table: ShareTable) -> list[ShareValues]:
    """The shares of the groups and of the owners with the most waiting jobs and use."""
    rows = [row for row in table.rows if row.entitled is not None or row.waiting]
    rows.sort(key=lambda row: (-row.waiting, -_used(row)))
    groups, owners = [row for row in rows if not row.owner], [row for row in rows if row.owner]
    return [
        ShareValues(
            row.group if row.owner else ALL_GROUPS,
            row.owner or row.group,
            row.entitled or 0.0,
            _used(row),
            row.scaled,
        )
        for row in (*groups[:MOST_GROUPS], *owners[:MOST_OWNERS])
    ]


def _used(row: ShareRow) -> float:
    """The part that was used over the longest span that corrections look back on, or else that is shown."""
    spans = [part for part in row.slices if part.corrector] or row.slices
    return (max(spans, key=lambda part: part.time_span).used or 0.0) if spans else 0.0


def record(
    tx: Transaction,
    now: float,
    elapsed: float,
    waiting: Sequence[WaitingCount],
    shares: Sequence[ShareValues],
) -> None:
    """Add jobs and shares to the intervals of the time since the last record, but of `elapsed` seconds at most."""
    following = next_record(intervals.recorded_until(tx.connection), now, elapsed)
    if following is None:
        return
    if following.forget_later:
        intervals.forget_after(tx.connection, following.end)
    parts = pieces(following.begin, following.end)
    intervals.add(tx.connection, parts, following.end, waiting, shares)
