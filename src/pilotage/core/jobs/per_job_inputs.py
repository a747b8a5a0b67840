"""Input files of which each job of a submission gets its own: their digests stand in the rows of parameters.

The column `@2` of the rows is for the third entry of the input sandbox, and its values are `digest:size:x`, with the
SHA-256 of the file, its bytes, and 1 if it is executable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import COPY, JobDescription

_COLUMN: Final = re.compile(r"@(0|[1-9]\d{0,4})\Z")
_VALUE: Final = re.compile(r"([0-9a-f]{64}):(\d{1,18}):([01])\Z")


class PerJobFile(NamedTuple):
    digest: str
    size: int
    executable: bool


def column_name(place: int) -> str:
    """The name of the column for the entry at `place` of the input sandbox."""
    return f"@{place}"


def is_file_column(name: str) -> bool:
    return _COLUMN.match(name) is not None


def encode_file(file: PerJobFile) -> str:
    return f"{file.digest}:{file.size}:{int(file.executable)}"


def decode_file(value: Any) -> PerJobFile:
    """What `encode_file` was given, or InvalidInput."""
    found = _VALUE.match(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidInput(
            f"{value!r:.100} is not the digest, size and mode of an input file",
            hint="submit such files with the client",
            field="parameters",
        )
    return PerJobFile(found[1], int(found[2]), found[3] == "1")


def per_job_columns(description: JobDescription, names: Sequence[str]) -> dict[int, int]:
    """By place in the input sandbox: the place in a row. Raises InvalidInput for a column of no file to be sent."""
    places: dict[int, int] = {}
    for place, name in enumerate(names):
        found = _COLUMN.match(name)
        if found is None:
            continue
        entry = int(found[1])
        if entry >= len(description.input_sandbox) or description.input_sandbox[entry].mode != COPY:
            raise InvalidInput(f"{name} names no file of the input sandbox to be sent", field="parameters")
        places[entry] = place
    return places


def per_job_files(
    description: JobDescription, names: Sequence[str], row: Sequence[Any]
) -> dict[int, PerJobFile]:
    """By place in the input sandbox: the file of the job with this row."""
    return {entry: decode_file(row[place]) for entry, place in per_job_columns(description, names).items()}
