"""Waiting jobs and shares over time, as sums by interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pilotage.core.ids import QueueId
from pilotage.core.intervals import SPANS, IntervalPiece, PeriodParts
from pilotage.store.engine.bulk_statements import insert
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import ONE_SERVER, decision, overwrites
from pilotage.store.tables.selections import Viewer

EVERYBODY = ""
"""Stands for the owner in a row of all owners of a group."""
OTHER_GROUPS = ""
"""Stands for the groups that have no row of their own."""
ALL_GROUPS = ""
"""Stands for `within` in the row of a group, among all groups."""


class WaitingCount(NamedTuple):
    """Jobs that wait for one reason."""

    owner: str
    """`EVERYBODY`, or one owner."""
    group: str
    reason: str
    jobs: int


class ShareValues(NamedTuple):
    """The share of a group among all groups (`within` is empty), or of an owner in a group."""

    within: str
    name: str
    entitled: float
    used: float
    correction: float


# --- recording


@decision(ONE_SERVER)
def recorded_until(connection: Connection) -> float | None:
    """The last instant that is recorded; None: nothing is."""
    sql = "SELECT until FROM recorded_intervals WHERE span = ? ORDER BY start DESC LIMIT 1"
    row = connection.execute(sql, (SPANS[0],)).fetchone()
    return None if row is None else float(row[0])


_ADD_SECONDS = (
    "INSERT INTO recorded_intervals (span, start, seconds, until) VALUES (?, ?, ?, ?) ON CONFLICT (span, start)"
    " DO UPDATE SET seconds = recorded_intervals.seconds + excluded.seconds, until = excluded.until"
)
_ADD_WAITING = insert(
    "waiting_intervals",
    ("span", "start", "owner", "grp", "reason", "job_seconds"),
    conflict=("span", "start", "owner", "grp", "reason"),
    otherwise="ADD",
)
_ADD_SHARES = insert(
    "share_intervals",
    ("span", "start", "within", "name", "seconds", "entitled", "used", "correction"),
    conflict=("span", "start", "within", "name"),
    otherwise="ADD",
)


def add(
    connection: Connection,
    pieces: Sequence[IntervalPiece],
    until: float,
    waiting: Sequence[WaitingCount],
    shares: Sequence[ShareValues],
) -> None:
    """Add a record, which ends at `until`, to its intervals."""
    for piece in pieces:
        connection.execute_later(_ADD_SECONDS, (*piece, until))
    connection.execute_bulk_later(
        _ADD_WAITING,
        [
            (span, start, row.owner, row.group, row.reason, row.jobs * seconds)
            for span, start, seconds in pieces
            for row in waiting
        ],
    )
    connection.execute_bulk_later(
        _ADD_SHARES,
        [
            (span, start, within, name, seconds, *(value * seconds for value in values))
            for span, start, seconds in pieces
            for within, name, *values in shares
        ],
    )


@overwrites(ONE_SERVER)
def forget_after(connection: Connection, instant: float) -> None:
    """Delete the intervals that begin after an instant."""
    for table in _KEYS:
        for span in SPANS:
            connection.execute(f"DELETE FROM {table} WHERE span = ? AND start > ?", (span, int(instant)))


_KEYS = {
    "waiting_intervals": ("span", "start", "owner", "grp", "reason"),
    "share_intervals": ("span", "start", "within", "name"),
    "recorded_intervals": ("span", "start"),
}
"""The primary keys of the tables. An interval goes when its rows are gone."""


@overwrites(ONE_SERVER)
def delete_before(connection: Connection, span: int, before: float, most: int) -> int:
    """Delete at most `most` rows of intervals of one length that ended before an instant; returns their number."""
    deleted = 0
    for table, key in _KEYS.items():
        sql = f"SELECT {', '.join(key)} FROM {table} WHERE span = ? AND start < ? ORDER BY {', '.join(key)} LIMIT ?"
        rows = connection.execute(sql, (span, int(before) - span, most - deleted)).fetchall()
        where = " AND ".join(f"{column} = ?" for column in key)
        connection.executemany(f"DELETE FROM {table} WHERE {where}", [tuple(row) for row in rows])
        deleted += len(rows)
        if deleted == most:
            break
    return deleted


# --- reading


def recorded_seconds(connection: Connection, parts: PeriodParts) -> dict[int, float]:
    """For how long each part of a period was recorded. Parts without a record are left out."""
    sql = (
        "SELECT (start - ?) / ?, sum(seconds) FROM recorded_intervals"
        " WHERE span = ? AND start >= ? AND start < ? GROUP BY 1"
    )
    return {int(row[0]): float(row[1]) for row in connection.execute(sql, _period(parts))}


def _period(parts: PeriodParts) -> tuple[int, ...]:
    return (parts.begin, parts.length, parts.span, parts.begin, parts.end)


class WaitingSum(NamedTuple):
    """The jobs of a group that waited for a reason in one part of a period, times seconds."""

    part: int
    group: str
    reason: str
    job_seconds: float


_WAITING = (
    "SELECT (i.start - ?) / ?, w.grp, w.reason, sum(w.job_seconds) FROM recorded_intervals i"
    " JOIN waiting_intervals w ON w.span = i.span AND w.start = i.start AND w.owner = ? AND {condition}"
    " WHERE i.span = ? AND i.start >= ? AND i.start < ? GROUP BY 1, 2, 3"
)


def waiting(connection: Connection, parts: PeriodParts, viewer: Viewer) -> list[WaitingSum]:
    """The waiting jobs that a caller may see, by part of a period, group and reason."""
    first, last = _period(parts)[:2], _period(parts)[2:]

    def rows(owner: str, condition: str, *values: str) -> Iterable[WaitingSum]:
        sql = _WAITING.format(condition=condition)
        return (WaitingSum(*row) for row in connection.execute(sql, (*first, owner, *values, *last)))

    if viewer.everything:
        return list(rows(EVERYBODY, "w.grp >= ?", ""))
    sums = list(rows(viewer.owner, "w.grp <> ?", viewer.shared_group))
    if viewer.shared_group:
        sums += rows(EVERYBODY, "w.grp = ?", viewer.shared_group)
    return sums


class ShareSums(NamedTuple):
    """The sums of the values of a share in one part of a period, times seconds."""

    part: int
    name: str
    seconds: float
    entitled: float
    used: float
    correction: float


def shares(connection: Connection, parts: PeriodParts, within: str) -> list[ShareSums]:
    """The shares of all groups, or of the owners `within` one, by part of a period."""
    sql = (
        "SELECT (i.start - ?) / ?, s.name, sum(s.seconds), sum(s.entitled), sum(s.used), sum(s.correction)"
        " FROM recorded_intervals i JOIN share_intervals s"
        " ON s.span = i.span AND s.start = i.start AND s.within = ?"
        " WHERE i.span = ? AND i.start >= ? AND i.start < ? GROUP BY 1, 2 ORDER BY 1, 2"
    )
    begin, length, *last = _period(parts)
    return [ShareSums(*row) for row in connection.execute(sql, (begin, length, within, *last))]


class PastWait(NamedTuple):
    """A queue that waited for a reason in some period."""

    queue: QueueId
    owner: str
    group: str
    reason: str
    detail: str
    since: float
    until: float | None
    """None: it still does."""


def past_waits(
    connection: Connection,
    period: tuple[float, float],
    reason: str,
    viewer: Viewer,
    after: int,
    limit: int,
) -> list[PastWait]:
    """The last wait of each visible queue that fell into a period, by queue. `reason`: one, or empty for all."""
    begin, end = period
    seen, given = "", list[object]()
    if not viewer.everything:
        seen = " AND (q.owner = ? OR q.grp = ?)"
        given = [viewer.owner, viewer.shared_group]
    kind = "x.reason = ?" if reason else "x.reason <> ?"
    sql = (
        "SELECT * FROM (SELECT q.id, q.owner, q.grp, r.reason, r.detail, r.since, (SELECT n.since"
        " FROM queue_reasons n WHERE n.queue_id = q.id AND n.id > r.id ORDER BY n.id LIMIT 1) AS ended"
        f" FROM queues q JOIN queue_reasons r ON r.id = (SELECT max(x.id) FROM queue_reasons x"
        f" WHERE x.queue_id = q.id AND {kind} AND x.since < ?) WHERE q.id > ?{seen}) AS waits"
        " WHERE ended IS NULL OR ended > ? ORDER BY id LIMIT ?"
    )
    rows = connection.execute(sql, (reason, end, after, *given, begin, limit))
    return [PastWait(QueueId(row[0]), *row[1:]) for row in rows]
