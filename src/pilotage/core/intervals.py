"""Intervals in which waiting jobs and shares are recorded: of ten minutes, an hour, a day and four weeks, in UTC.

A record covers some seconds and is added to the interval of each length. So no interval is made from others later.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf
from typing import NamedTuple

TEN_MINUTES, HOUR, DAY = 600, 3600, 86400
FOUR_WEEKS = 28 * DAY
SPANS = (TEN_MINUTES, HOUR, DAY, FOUR_WEEKS)
KEPT: Mapping[int, float] = {TEN_MINUTES: 2.0 * DAY, HOUR: 35.0 * DAY, DAY: 100.0 * DAY}
"""Seconds for which the shorter intervals are kept, at most. The policy says how long all are kept."""

LONGEST_RECORD = 600.0
"""Seconds that a record covers at most: the state before is not known."""
MOST_AHEAD = float(DAY)
"""Seconds by which the last record may lie ahead of the clock. Records further ahead were made by a wrong clock."""


class IntervalPiece(NamedTuple):
    """The part of a record in one interval."""

    span: int
    start: int
    seconds: float


def pieces(begin: float, end: float) -> list[IntervalPiece]:
    """The parts of [begin, end) in the intervals of each length."""
    added = list[IntervalPiece]()
    for span in SPANS:
        start = int(begin // span) * span
        while start < end:
            added.append(IntervalPiece(span, start, min(end, start + span) - max(begin, start)))
            start += span
    return added


class NextRecord(NamedTuple):
    """The time that the next record covers."""

    begin: float
    end: float
    forget_later: bool
    """Whether records after `end` are of a wrong clock, and are deleted."""


def next_record(recorded_until: float | None, now: float, elapsed: float) -> NextRecord | None:
    """The time to record at `now`, `elapsed` seconds after the last look by a clock that never steps; None: nothing.

    No instant is recorded twice. After the clock has stepped back, recording goes on where it stopped.
    """
    begin = now - min(elapsed, LONGEST_RECORD)
    if recorded_until is not None and recorded_until > now + MOST_AHEAD:
        return NextRecord(begin, now, forget_later=True)
    if recorded_until is not None:
        begin = max(begin, recorded_until)
    return NextRecord(begin, now, forget_later=False) if begin < now else None


class PeriodParts(NamedTuple):
    """Equal parts of a period, each of whole intervals of `span` seconds."""

    begin: int
    length: int
    number: int
    span: int

    @property
    def end(self) -> int:
        return self.begin + self.length * self.number

    def start(self, part: int) -> int:
        return self.begin + self.length * part


def parts_of(begin: float, end: float, points: int, now: float) -> PeriodParts:
    """At most `points` parts of [begin, end), of the longest intervals that are short enough.

    The last part ends with the interval of `end`, so the first one may begin an interval after `begin`. Where short
    intervals are not kept any more, parts are longer.
    """
    wanted = (end - begin) / points
    spans = [span for span in SPANS if KEPT.get(span, inf) >= now - begin]
    span = max((span for span in spans if span <= wanted), default=spans[0])
    length = max(1, ceil(wanted / span)) * span
    first, last = int(begin // span) * span, ceil(end / span) * span
    number = min(points, max(1, ceil((last - first) / length)))
    return PeriodParts(last - number * length, length, number, span)
