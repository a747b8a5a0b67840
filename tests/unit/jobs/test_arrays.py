"""Arrays as in Slurm."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.arrays import Array, parse_array


@pytest.mark.parametrize(
    ("text", "values", "parallel"),
    [
        ("0-3", [0, 1, 2, 3], 0),
        ("7", [7], 0),
        ("1-10:4", [1, 5, 9], 0),
        ("1,5-7", [1, 5, 6, 7], 0),
        ("0-2%10", [0, 1, 2], 10),
        ("9,1%1", [9, 1], 1),
        (" 0 - 1 ", [0, 1], 0),
    ],
)
def test_ranges(text: str, values: list[int], parallel: int) -> None:
    assert parse_array(text, 100) == Array(values, parallel)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-9%0", "0 is not a number of jobs above 0"),
        ("0-9%", "nothing is not a number of jobs above 0"),
        ("0-9%-3", "-3 is not a number of jobs above 0"),
        ("9-0", "9-0 ends before it begins"),
        ("-1-5", "-1-5 is not a number or a range"),
        ("-5", "-5 is not a number or a range"),
        ("", "nothing is not a number or a range"),
        ("1,,2", "nothing is not a number or a range"),
        ("1-9:0", "the step of 1-9:0 is 0"),
        ("1-9:", "1-9: is not a number or a range"),
        ("0-9999999", "it has 10,000,000 jobs, and a submission has at most 100"),
        ("0-" + "9" * 40, "is not a number or a range"),
        ("1,1", "it names a number twice"),
        ("٣", "is not a number or a range"),
        ("a-b", "a-b is not a number or a range"),
    ],
)
def test_bad_input(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_array(text, 100)
    assert words in str(refused.value)
