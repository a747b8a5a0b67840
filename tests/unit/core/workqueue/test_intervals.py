"""Intervals agree with a set of integers, and a change at any place costs about the same."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.workqueue import intervals
from pilotage.core.workqueue.intervals import Intervals

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6)), max_size=60)


def runs(members: set[int]) -> list[tuple[int, int]]:
    """The members as disjoint intervals that do not touch."""
    found: list[list[int]] = []
    for member in sorted(members):
        if found and found[-1][1] == member:
            found[-1][1] += 1
        else:
            found.append([member, member + 1])
    return [(begin, end) for begin, end in found]


@pytest.mark.parametrize("chunk", [1, 2, 512])
def test_intervals_agree_with_a_set_of_integers(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "CHUNK", chunk)

    @given(SPANS)
    def check(spans: list[tuple[int, int]]) -> None:
        made, members = Intervals(), set[int]()
        for begin, length in spans:
            end, span = begin + length, set(range(begin, begin + length))
            assert made.overlaps(begin, end) == bool(span & members)
            assert made.contains(begin, end) == (span <= members)
            gaps = made.gaps(begin, end)
            assert gaps == runs(span - members)
            for gap in gaps:
                made.add(*gap)
            members |= span
            assert list(made) == runs(members)
            assert bool(made)
        other = Intervals()
        for begin, end in reversed(runs(members)):
            other.add(begin, end)
        assert made == other

    check()


def test_an_insertion_moves_no_more_than_a_chunk() -> None:
    made = Intervals()
    places = list(range(0, 40_000, 4))
    Random(1).shuffle(places)
    for begin in (*places, *range(1_000_000, 900_000, -4)):
        made.add(begin, begin + 1)
    assert max(len(begins) for begins in made._begins) <= 2 * intervals.CHUNK
    assert len(list(made)) == len(places) + 25_000
