"""Columns of the parameter rows that the client adds: input files of single jobs, and jobs that are run again.

Column `@2` of the rows belongs to the third entry of the input sandbox. Its values are `digest:size:x`: the SHA-256 of
the file, its size in bytes, and 1 if it is executable, else 0. Column `@rerun` has the id of the job that each new
job runs again; that job is then superseded.
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


RERUN_COLUMN: Final = "@rerun"


def column_name(place: int) -> str:
    """The column for entry number `place` of the input sandbox."""
    return f"@{place}"


def is_file_column(name: str) -> bool:
    return _COLUMN.match(name) is not None


def is_internal_column(name: str) -> bool:
    """Whether the client adds this column; users do not see it, and no placeholder names it."""
    return name == RERUN_COLUMN or is_file_column(name)


def named_values(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """The values of one job by the names of the user's parameters; the unnamed one is ""."""
    named = zip(names, values, strict=False)
    return {name: value for name, value in named if not is_internal_column(name)}


def has_parameters(names: Sequence[str]) -> bool:
    """Whether the user gave parameters: `%n` has a value then."""
    return not all(map(is_internal_column, names))


def rerun_jobs(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
    """The ids of the jobs that the jobs of these rows run again.

    Raises InvalidInput for a value that is not a job id.
    """
    if RERUN_COLUMN not in names:
        return []
    place = names.index(RERUN_COLUMN)
    ids = [row[place] for row in rows]
    for id_ in ids:
        if type(id_) is not int or not 0 < id_ < 2**63:
            raise InvalidInput(f"{id_!r:.100} is not the id of a job to run again", field="parameters")
    return ids


def encode_file(file: PerJobFile) -> str:
    return f"{file.digest}:{file.size}:{int(file.executable)}"


def decode_file(value: Any) -> PerJobFile:
    """The inverse of `encode_file`; raises InvalidInput for any other value."""
    match = _VALUE.match(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidInput(
            f"{value!r:.100} is not the digest, size and mode of an input file",
            hint="submit jobs with their own input files through the client",
            field="parameters",
        )
    return PerJobFile(match[1], int(match[2]), match[3] == "1")


def per_job_columns(description: JobDescription, names: Sequence[str]) -> dict[int, int]:
    """Index in the input sandbox → index in a row. Raises InvalidInput for a column without a file to upload."""
    places: dict[int, int] = {}
    for place, name in enumerate(names):
        match = _COLUMN.match(name)
        if match is None:
            continue
        entry = int(match[1])
        if entry >= len(description.input_sandbox) or description.input_sandbox[entry].mode != COPY:
            raise InvalidInput(
                f"{name} does not refer to an uploaded file of the input sandbox", field="parameters"
            )
        places[entry] = place
    return places


def per_job_files(
    description: JobDescription, names: Sequence[str], row: Sequence[Any]
) -> dict[int, PerJobFile]:
    """Index in the input sandbox → the file of the job with this row."""
    return {entry: decode_file(row[place]) for entry, place in per_job_columns(description, names).items()}
