"""Numbers of jobs as Slurm writes them: `12`, `12_3`, `12_[1-3,7]`, `12.batch`.

A job of Slurm has the id of the job of Pilotage. An array has the id of its first job, and task k of it is the job
of the submission whose parameter is k. So each task has a number of its own too, as in Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from pilotage import wire
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.arrays import parse_array

_NUMBER: Final = re.compile(
    r"(\d{1,18})(?:_(?:(\d{1,12})|\[([0-9,:%-]+)\]|(\*)))?(?:\.(batch|extern|\d+))?\Z", re.ASCII
)


class JobNumber(NamedTuple):
    number: int
    tasks: tuple[int, ...] | None = None
    """Tasks of an array; None: the whole array, or one job."""
    step: str = ""
    """`batch`, `extern` or a number; "": the job itself."""


def parse_number(word: str) -> JobNumber:
    """One number. Raises InvalidInput.

    >>> parse_number("12_[1-3]")
    JobNumber(number=12, tasks=(1, 2, 3), step='')
    """
    match = _NUMBER.match(word.strip())
    if match is None or int(match[1]) == 0:
        raise InvalidInput(f"invalid job id {word}", hint="12, 12_3 or 12_[1-3]")
    tasks: tuple[int, ...] | None = None
    if match[2]:
        tasks = (int(match[2]),)
    elif match[3]:
        tasks = tuple(parse_array(match[3], wire.submissions.MAX_JOBS_PER_SUBMISSION).values)
    return JobNumber(int(match[1]), tasks, match[5] or "")


def parse_numbers(words: Iterable[str]) -> list[JobNumber]:
    """Numbers separated by spaces or commas, with commas allowed in brackets."""
    numbers: list[JobNumber] = []
    for word in words:
        numbers += [parse_number(part) for part in re.split(r",(?![^\[]*\])", word) if part.strip()]
    return numbers
