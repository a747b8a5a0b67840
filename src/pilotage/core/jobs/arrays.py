"""Arrays of jobs, written as in Slurm: `0-99`, `1-100:2`, `1,5-8`, and `%10` at the end for at most ten at once."""

from __future__ import annotations

import re
from itertools import chain
from typing import Final, NamedTuple

from pilotage.core.errors import InvalidInput

_PART: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MAX_DIGITS: Final = 12
_HINT: Final = "it is written 0-99, 1-100:2, 1,5-8 or 0-99%10"


class Array(NamedTuple):
    values: list[int]
    """The values of the parameter `%s`, one for each job."""
    parallel: int
    """The most jobs that run at once; 0: no limit."""


def parse_array(text: str, most: int, *, repeats: bool = False) -> Array:
    """Read an array of at most `most` jobs. `repeats`: it may name a number twice.

    >>> parse_array("1-5:2,9%2", 100)
    Array(values=[1, 3, 5, 9], parallel=2)
    """
    ranges, percent, at_once = text.replace(" ", "").partition("%")
    if percent and (not _is_number(at_once) or not int(at_once)):
        raise InvalidInput(
            f"array {text}: {at_once or 'nothing'} is not a number of jobs above 0", hint=_HINT
        )
    parts = [_read_range(part, text) for part in ranges.split(",")]
    count = sum(map(len, parts))
    if count > most:
        raise InvalidInput(
            f"array {text}: it has {count:,} jobs, and a submission has at most {most:,}",
            hint="submit several arrays",
        )
    values = list(chain.from_iterable(parts))
    if not repeats and len(set(values)) < count:
        raise InvalidInput(f"array {text}: it names a number twice")
    return Array(values, int(at_once) if percent else 0)


def _read_range(part: str, text: str) -> range:
    match = _PART.fullmatch(part)
    if match is None or any(len(word) > _MAX_DIGITS for word in match.groups("")):
        raise InvalidInput(f"array {text}: {part or 'nothing'} is not a number or a range", hint=_HINT)
    first = int(match[1])
    last, step = int(match[2] or first), int(match[3] or 1)
    if not step:
        raise InvalidInput(f"array {text}: the step of {part} is 0", hint=_HINT)
    if last < first:
        raise InvalidInput(f"array {text}: {part} ends before it begins", hint=f"{last}-{first}")
    return range(first, last + 1, step)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
