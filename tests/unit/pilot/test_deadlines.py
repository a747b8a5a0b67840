"""The first of many deadlines, against a plain table."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pilotage.pilot.deadlines import Deadlines

KEYS = st.integers(0, 5)
INSTANTS = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
STEPS = st.lists(st.one_of(st.tuples(KEYS, INSTANTS), st.integers(0, 9).map(float)), max_size=200)


@given(STEPS)
def test_deadlines_agree_with_a_plain_table(steps: list[tuple[int, float] | float]) -> None:
    deadlines, table = Deadlines[int](), dict[int, float]()
    for step in steps:
        if isinstance(step, tuple):
            deadlines.set(*step)
            table[step[0]] = step[1]
        else:
            due = deadlines.pop_due(step)
            assert sorted(due) == sorted(key for key, instant in table.items() if instant <= step)
            assert [table[key] for key in due] == sorted(table[key] for key in due)
            for key in due:
                del table[key]
        assert deadlines.next_at() == min(table.values(), default=math.inf)


def test_replaced_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines[int]()
    deadlines.set(1, 1.0)
    for instant in range(2, 1000):
        deadlines.set(2, float(instant))
    assert len(deadlines._heap) < 25
    assert deadlines.pop_due(10_000.0) == [1, 2]
