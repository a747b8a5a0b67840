"""The order of tests: each worker begins with modules that take long, and the record names modules that exist."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.order import LONG, RECORD, order_tests, read_durations, write_durations

DURATIONS = {"a": 300.0, "b": 200.0, "c": 150.0, "d": 40.0, "e": LONG - 1}


def given_to_workers(tests: list[str], workers: int) -> list[list[str]]:
    """The share of each worker, as pytest-xdist divides the tests at first."""
    shares = []
    for place in range(workers):
        size = len(tests) // (workers - place)
        shares.append(tests[:size])
        tests = tests[size:]
    return shares


def modules(**counts: int) -> list[tuple[str, str]]:
    return [(module, f"{module}{number}") for module, count in counts.items() for number in range(count)]


def test_the_longest_modules_begin_at_different_workers() -> None:
    ordered = order_tests(modules(e=20, d=3, c=3, b=3, a=3, f=40), DURATIONS, 3)
    first, second, third = sorted(given_to_workers(ordered, 3))
    assert first[:3] == ["a0", "a1", "a2"]
    assert second[:3] == ["b0", "b1", "b2"]
    assert third[:6] == ["c0", "c1", "c2", "d0", "d1", "d2"]
    assert {len(first), len(second), len(third)} == {24}


def test_modules_that_are_not_recorded_come_last_in_their_order() -> None:
    ordered = order_tests(modules(e=4, a=2, f=4), DURATIONS, 2)
    assert [test for test in ordered if test[0] != "a"] == [
        f"{module}{n}" for module in "ef" for n in range(4)
    ]
    assert given_to_workers(ordered, 2)[1][:2] == ["a0", "a1"]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 900)),
    st.integers(1, 6),
)
def test_each_test_runs_once(counts: dict[str, int], durations: dict[str, float], workers: int) -> None:
    tests = modules(**counts)
    ordered = order_tests(tests, durations, workers)
    assert sorted(ordered) == sorted(test for _, test in tests)
    assert ordered == order_tests(tests, durations, workers), "all workers collect the same order"


def test_a_record_is_read_back(tmp_path: Path) -> None:
    write_durations(tmp_path / "record", {"tests/short.py": 1.0, "tests/b.py": 7.4, "tests/a.py": 61.6})
    assert (tmp_path / "record").read_text() == "62 tests/a.py\n7 tests/b.py\n"
    assert read_durations(tmp_path / "record") == {"tests/a.py": 62.0, "tests/b.py": 7.0}


def test_the_record_names_modules_that_exist() -> None:
    root = RECORD.parent.parent
    assert [module for module in read_durations() if not (root / module).is_file()] == []
