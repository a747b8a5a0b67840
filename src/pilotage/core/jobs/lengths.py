"""Limits on the length of texts and lists in a job description.

Job lists, events and messages to pilots repeat these texts, so each has a limit. The limits apply to the description
as written, and to each job with its placeholders replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final, NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import InputFile, JobDescription

_MOST_BYTES: Final = 4
"""Bytes of one character in UTF-8, at most."""


class Length(NamedTuple):
    max_chars: int
    """Characters of one text."""
    max_entries: int = 1000
    """Entries of a list."""
    in_bytes: bool = False
    """Bytes of UTF-8 count in place of characters."""

    def of(self, text: str) -> int:
        """The length of a text as this limit counts it."""
        return len(text.encode() if self.in_bytes and not text.isascii() else text)

    @property
    def unit(self) -> str:
        return "bytes" if self.in_bytes else "characters"

    def surely_takes(self, characters: int) -> bool:
        """Whether any text of this number of characters is short enough."""
        return characters * (_MOST_BYTES if self.in_bytes else 1) <= self.max_chars


MAX_TOTAL_CHARS: Final = 1_000_000
"""Characters of all texts of one job."""
MAX_VALUE_CHARS: Final = 65_536
"""Characters of one parameter value."""

NAME: Final = Length(255)
_ARGUMENT: Final = 131_071
"""The longest argument that Linux passes to a program."""
_PATH: Final = 4096
_EXPRESSION: Final = 100_000

LENGTHS: Final[dict[str, Length]] = {
    # As in Slurm. An index of the store has it, and takes 2,700 bytes.
    "job_name": Length(1024, in_bytes=True),
    "executable": Length(_PATH),
    "arguments": Length(_ARGUMENT, 10_000),
    "environment": Length(_ARGUMENT, 1000),
    "setup_lines": Length(65_536, 1000),
    "container": Length(_PATH),
    "input_sandbox": Length(_PATH, 10_000),
    "output_sandbox": Length(1000, 1000),
    "std_output": Length(1000),
    "std_error": Length(1000),
    "folder": Length(_PATH),
    "stdout_file": Length(_PATH),
    "stderr_file": Length(_PATH),
    "folder_mark": Length(1000),
    "requirements": Length(_EXPRESSION),
    "host_requirements": Length(_EXPRESSION),
}
"""Limits of the fields with long texts; NAME applies to all other fields."""


def length_of(field: str) -> Length:
    return LENGTHS.get(field, NAME)


def check_raw_length(field: str, value: object) -> None:
    """Raises InvalidInput for a text that is too long to be parsed."""
    if isinstance(value, str) and len(value) > MAX_TOTAL_CHARS:
        raise InvalidInput(
            f"{field} has {len(value):,} characters; the limit is {MAX_TOTAL_CHARS:,}", field=field
        )


def check_length(field: str, value: Any) -> None:
    """Raises InvalidInput with the field and its limit if a value exceeds it."""
    limit = length_of(field)
    if isinstance(value, tuple) and len(value) > limit.max_entries:
        raise InvalidInput(
            f"{field} has {len(value):,} entries; the limit is {limit.max_entries:,}", field=field
        )
    for text in _texts(value):
        check_text_length(field, limit.of(text), limit)


def check_text_length(field: str, length: int, limit: Length) -> None:
    """`length`: as `Length.of` counts it."""
    if length > limit.max_chars:
        raise InvalidInput(
            f"{field}: a text has {length:,} {limit.unit}; the limit is {limit.max_chars:,}",
            hint="put long texts into a file of the input sandbox",
            field=field,
        )


def check_total_length(length: int) -> None:
    """Raises InvalidInput if `length`, the characters of all texts of a job, exceeds the limit."""
    if length > MAX_TOTAL_CHARS:
        raise InvalidInput(
            f"the texts of one job have {length:,} characters in total; the limit is {MAX_TOTAL_CHARS:,}",
            hint="put long texts into files of the input sandbox",
        )


def total_length(description: JobDescription) -> int:
    """Characters of all texts of a description."""
    return sum(
        len(text) for field in fields(JobDescription) for text in _texts(getattr(description, field.name))
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, InputFile):
        yield value.name
        yield value.source
    elif isinstance(value, tuple):
        for entry in value:
            yield from _texts(entry)
