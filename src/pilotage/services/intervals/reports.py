"""Reports on waiting jobs and shares over time, from their intervals."""

from __future__ import annotations

from pilotage.core.intervals import PeriodParts, parts_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import intervals
from pilotage.store.tables.intervals import ShareSums
from pilotage.store.tables.selections import Viewer
from pilotage.wire.intervals import (
    PeriodQuery,
    ShareHistory,
    ShareHistoryQuery,
    SharePoint,
    WaitingHistory,
    WaitingHistoryQuery,
    WaitingPoint,
)

GROUPS_NAMED = 20
"""Groups that a report on waiting jobs names. The others are summed."""
OTHERS = ""


def waiting_history(
    connection: Connection, asked: WaitingHistoryQuery, viewer: Viewer, now: float
) -> WaitingHistory:
    """The waiting jobs that a caller may see, by reason and group, in equal parts of a period."""
    parts = _parts(asked, now)
    recorded = intervals.recorded_seconds(connection, parts)
    rows = intervals.waiting(connection, parts, viewer)
    of_groups = dict[str, float]()
    for row in rows:
        of_groups[row.group] = of_groups.get(row.group, 0.0) + row.job_seconds
    named = sorted(of_groups, key=lambda group: (-of_groups[group], group))[:GROUPS_NAMED]
    sums = dict[tuple[int, str, str], float]()
    for row in rows:
        if row.part in recorded and asked.group in ("", row.group):
            group = row.group if asked.group or row.group in named else OTHERS
            key = (row.part, group, row.reason)
            sums[key] = sums.get(key, 0.0) + row.job_seconds
    points = [
        WaitingPoint(parts.start(part), group, reason, sums[part, group, reason] / recorded[part])
        for part, group, reason in sorted(sums)
    ]
    return WaitingHistory(parts.begin, parts.end, parts.length, _recorded(parts, recorded), points)


def share_history(connection: Connection, asked: ShareHistoryQuery, now: float) -> ShareHistory:
    """The shares of all groups, or of the owners of one, in equal parts of a period."""
    parts = _parts(asked, now)
    recorded = intervals.recorded_seconds(connection, parts)
    rows = [row for row in intervals.shares(connection, parts, asked.group) if row.part in recorded]
    wholes = dict[int, float]()
    for row in rows:
        wholes[row.part] = wholes.get(row.part, 0.0) + _corrected(row)
    points = [
        SharePoint(
            parts.start(row.part),
            row.name if asked.group else "",
            asked.group or row.name,
            row.entitled / recorded[row.part],
            row.used / recorded[row.part],
            row.correction / row.seconds,
            _corrected(row) / wholes[row.part] if wholes[row.part] else 0.0,
        )
        for row in rows
    ]
    return ShareHistory(parts.begin, parts.end, parts.length, _recorded(parts, recorded), points)


def _corrected(row: ShareSums) -> float:
    """The entitled share times the correction, summed over the time that is recorded."""
    return row.entitled * row.correction / row.seconds


def _parts(asked: PeriodQuery, now: float) -> PeriodParts:
    end = now if asked.end is None else asked.end
    return parts_of(end - asked.since, end, asked.points, now)


def _recorded(parts: PeriodParts, seconds: dict[int, float]) -> list[float]:
    return [seconds.get(part, 0.0) for part in range(parts.number)]
