"""Times, amounts and lists of numbers: what the commands print, they also read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.slurm.amounts import format_long_clock, format_ranges, parse_megabytes, parse_minutes
from pilotage.cli.slurm.job_numbers import JobNumber, parse_number, parse_numbers
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


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1.5", "1-"])
def test_words_that_are_no_times(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--time .*: it is no time"):
        parse_minutes(text, "--time")
