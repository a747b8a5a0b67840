"""Times, amounts and lists of numbers: what the commands print, they also read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.slurm.amounts import (
    format_long_clock,
    format_ranges,
    parse_megabytes,
    parse_minutes,
    parse_moment,
)
from pilotage.cli.slurm.batch_job import _array
from pilotage.cli.slurm.dependencies import parse_dependency
from pilotage.cli.slurm.job_numbers import JobNumber, parse_number, parse_numbers
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.arrays import parse_array


@given(st.integers(1, 10_000_000))
def test_a_time_limit_as_sacct_prints_it_is_read_again_in_whole_minutes(seconds: int) -> None:
    limit = parse_minutes(format_long_clock(seconds), "--time")
    assert (limit % 60, limit - seconds in range(60)) == (0, True)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=40))
def test_task_numbers_as_squeue_prints_them_name_the_same_tasks(numbers: set[int]) -> None:
    text = format_ranges(sorted(numbers))
    assert set(parse_array(text, 1000).values) == numbers
    number = parse_number(f"12_[{text}]")
    assert (number.number, set(number.tasks or ())) == (12, numbers)


@given(st.integers(0, 10_000), st.sampled_from("MGT"))
def test_units_of_memory(amount: int, unit: str) -> None:
    factor = {"M": 1, "G": 1024, "T": 1024 * 1024}[unit]
    assert parse_megabytes(f"{amount}{unit}", "--mem") == amount * factor
    assert parse_megabytes(f"{amount}{unit.lower()}b", "--mem") == amount * factor


def test_lists_of_numbers_have_commas_in_brackets_too() -> None:
    assert parse_numbers(["1,2_[3,5]", "4.batch"]) == [
        JobNumber(1),
        JobNumber(2, (3, 5)),
        JobNumber(4, None, "batch"),
    ]


@pytest.mark.parametrize("word", ["0", "-1", "1_", "1_[", "1_[]", "1.x", "１２", "1 2", "9" * 19])
def test_words_that_are_no_numbers_of_jobs(word: str) -> None:
    with pytest.raises(InvalidInput):
        parse_number(word)


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1.5", "-", " 5"])
def test_words_that_are_no_times(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--time .*: it is no time"):
        parse_minutes(text, "--time")


ZONE = ZoneInfo("Europe/Berlin")


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1128", (11, 28)),
        ("112826", (11, 28)),
        ("11/28", (11, 28)),
        ("11/28/26", (11, 28)),
        ("11.28.26", (11, 28)),
        ("2026-11-28", (11, 28)),
        ("112826-10:30:00", (11, 28, 10, 30)),
        ("11/05/26-10:30", (11, 5, 10, 30)),
        ("2026-11-05T14:30", (11, 5, 14, 30)),
        ("2026-11-05T14:30:10", (11, 5, 14, 30, 10)),
        ("14:30", (10, 25, 14, 30)),
        ("00:00AM", (10, 25)),
        ("10:30AM", (10, 25, 10, 30)),
        ("2:30pm", (10, 25, 14, 30)),
        ("12:00AM", (10, 25)),
        ("noon", (10, 25, 12)),
        ("teatime", (10, 25, 16)),
        # Clocks change on this day: midnight still has the offset of summer.
        ("today", (10, 25)),
        ("midnight", (10, 25)),
        ("tomorrow", (10, 26)),
        ("yesterday", (10, 24)),
    ],
)
def test_times_of_sacct(text: str, expected: tuple[int, ...]) -> None:
    now = datetime(2026, 10, 25, 9, 15, tzinfo=ZONE).timestamp()
    expected_at = datetime(2026, *expected).replace(tzinfo=ZONE)  # type: ignore[arg-type]  # noqa: DTZ001
    assert parse_moment(text, "--starttime", now) == expected_at.timestamp()


@pytest.mark.parametrize("text", ["", "1331", "0230", "25:00", "2026-11-05T", "-10:00", "now-", "noon-1"])
def test_words_that_are_no_times_of_sacct(text: str) -> None:
    with pytest.raises(InvalidInput, match="it is no time"):
        parse_moment(text, "--starttime", datetime(2026, 10, 25, tzinfo=ZONE).timestamp())


@pytest.mark.parametrize(
    ("text", "numbers", "at_once"),
    [
        ("[1-3]", [1, 2, 3], 0),
        ("3,1,2,2", [1, 2, 3], 0),
        ("1-3,", [1, 2, 3], 0),
        ("[0-4:2]%1", [0, 2, 4], 1),
    ],
)
def test_arrays_of_sbatch(text: str, numbers: list[int], at_once: int) -> None:
    array = _array({"array": text})
    assert array is not None
    assert (array.values, array.parallel) == (numbers, at_once)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("12", {"after": ["12"]}),
        ("12:13", {"after": ["12", "13"]}),
        ("12,afterok:14", {"after": ["12"], "after_ok": ["14"]}),
    ],
)
def test_dependencies_without_a_kind(text: str, fields: dict[str, list[str]]) -> None:
    assert parse_dependency(text, str, list) == fields


@pytest.mark.parametrize("name", ["--tasks-per-node", "--tasks", "--ntasks-per-node"])
def test_another_name_of_an_option_sets_the_same_value(name: str) -> None:
    assert SBATCH_OPTIONS.read([name, "2"]).values == {"ntasks-per-node": "2"}
