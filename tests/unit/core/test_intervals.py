"""Intervals of recorded history: what a record adds to them, and how a period is divided."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.intervals import (
    DAY,
    HOUR,
    KEPT,
    LONGEST_RECORD,
    MOST_AHEAD,
    SPANS,
    TEN_MINUTES,
    NextRecord,
    next_record,
    parts_of,
    pieces,
)

NOW = 1_700_000_000.0


@given(st.floats(0, 1e10), st.floats(0, LONGEST_RECORD))
def test_a_record_is_added_whole_to_the_intervals_of_each_length(begin: float, seconds: float) -> None:
    found = pieces(begin, begin + seconds)
    for span in SPANS:
        own = [piece for piece in found if piece.span == span]
        assert sum(piece.seconds for piece in own) == pytest.approx(seconds, abs=1e-5)
        assert all(piece.start % span == 0 and 0 < piece.seconds <= span for piece in own if seconds > 1e-3)
        assert len(own) <= 2


def test_a_record_over_midnight_belongs_to_both_days() -> None:
    assert [piece for piece in pieces(DAY - 20.0, DAY + 40.0) if piece.span == DAY] == [
        (DAY, 0, 20.0),
        (DAY, DAY, 40.0),
    ]


@pytest.mark.parametrize(
    ("recorded_until", "elapsed", "following"),
    [
        (None, 60.0, NextRecord(NOW - 60, NOW, False)),
        (NOW - 60, 60.0, NextRecord(NOW - 60, NOW, False)),
        # Another server has recorded meanwhile.
        (NOW - 20, 60.0, NextRecord(NOW - 20, NOW, False)),
        # The server was down, or the clock has stepped forward: nobody saw the time before.
        (NOW - 7200, 60.0, NextRecord(NOW - 60, NOW, False)),
        # A look that came late.
        (NOW - 7200, 7200.0, NextRecord(NOW - LONGEST_RECORD, NOW, False)),
        # The clock has stepped back: this hour is recorded already.
        (NOW + 3600, 60.0, None),
        (NOW, 60.0, None),
        # The last records are of a clock that was wrong.
        (NOW + MOST_AHEAD + 1, 60.0, NextRecord(NOW - 60, NOW, True)),
        (NOW - 60, 0.0, None),
    ],
)
def test_no_instant_is_recorded_twice(
    recorded_until: float | None, elapsed: float, following: NextRecord | None
) -> None:
    assert next_record(recorded_until, NOW, elapsed) == following


@given(st.lists(st.tuples(st.floats(0, 5000), st.floats(-3 * HOUR, 3 * HOUR)), max_size=30))
def test_records_never_overlap_whatever_the_clock_does(looks: list[tuple[float, float]]) -> None:
    """Each look comes some seconds after the last one, and the clock steps before it."""
    until, clock, covered = None, NOW, 0.0
    for elapsed, step in looks:
        clock += elapsed + step
        following = next_record(until, clock, elapsed)
        if following is None:
            continue
        assert until is None or following.begin >= until
        assert 0 < following.end - following.begin <= elapsed + 1e-6
        until, covered = following.end, covered + following.end - following.begin
    assert covered <= sum(elapsed for elapsed, _ in looks) + 1e-3


@given(st.floats(60, 5e8), st.integers(1, 50), st.floats(0, 1e8))
def test_the_parts_of_a_period_are_whole_intervals(since: float, points: int, ago: float) -> None:
    end = NOW - ago
    parts = parts_of(end - since, end, points, NOW)
    assert 1 <= parts.number <= points
    assert parts.begin < end - since + parts.span
    assert end <= parts.end < end + parts.span
    assert parts.length % parts.span == 0 == parts.begin % parts.span
    assert KEPT.get(parts.span, inf) >= NOW - (end - since)
    assert parts.start(parts.number - 1) + parts.length == parts.end


@pytest.mark.parametrize(
    ("since", "points", "length", "number"),
    [
        (HOUR, 6, TEN_MINUTES, 6),
        (DAY, 24, HOUR, 24),
        (7 * DAY, 14, DAY // 2, 14),
        (30 * DAY, 15, 2 * DAY, 15),
        (364 * DAY, 13, 28 * DAY, 13),
    ],
)
def test_the_usual_periods_have_round_parts(since: float, points: int, length: int, number: int) -> None:
    parts = parts_of(NOW - since, NOW, points, NOW)
    assert (parts.length, parts.number) == (length, number)
