from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotage.twin.workload.seen_numbers import SeenNumbers


@given(st.lists(st.integers(-(10**12), 10**12) | st.integers(-2000, 2000)))
def test_a_number_is_new_once(numbers: list[int]) -> None:
    seen, known = SeenNumbers(), set()
    for number in numbers:
        assert seen.add(number) == (number not in known)
        known.add(number)
