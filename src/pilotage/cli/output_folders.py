"""The folder of each job's outputs: `--dir` with placeholders, such as `out/{name}`."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.parametric import value_text

if TYPE_CHECKING:
    from pilotage.wire.jobs import JobSummary

UNNAMED = "param"
"""The placeholder of the unnamed parameter, `%s` of the submission."""


def has_placeholders(pattern: str) -> bool:
    """Raises InvalidInput for a brace that is not closed."""
    try:
        return any(name is not None for _, name, *_ in string.Formatter().parse(pattern))
    except ValueError as trouble:
        raise InvalidInput(
            f"--dir {pattern}: {trouble}", hint="write {name}; {{ and }} are plain braces"
        ) from None


def folders_of(pattern: str, jobs: Iterable[JobSummary]) -> dict[int, Path]:
    """The folder of each job. Raises InvalidInput for an unknown placeholder, or a folder that two jobs would share."""
    folders: dict[int, Path] = {}
    taken: dict[Path, int] = {}
    for job in jobs:
        folder = Path(_filled(pattern, job))
        if folder in taken:
            raise InvalidInput(
                f"the outputs of jobs {taken[folder]} and {job.id} would both go to {folder}",
                hint="add {id} to --dir: it differs for each job",
            )
        taken[folder] = job.id
        folders[job.id] = folder
    return folders


def _filled(pattern: str, job: JobSummary) -> str:
    values = {"id": str(job.id), "submission": str(job.submission), "name": job.name}
    values |= {name or UNNAMED: value_text(value) for name, value in job.parameters.items()}
    parts: list[str] = []
    for text, name, form, conversion in string.Formatter().parse(pattern):
        parts.append(text)
        if name is not None:
            if name not in values or form or conversion:
                raise InvalidInput(
                    f"--dir {pattern}: job {job.id} has no value for {{{name}}}", hint=_known(values)
                )
            parts.append(_part_of_path(name, values[name], job))
    return "".join(parts)


def _known(values: Mapping[str, str]) -> str:
    return "known: " + ", ".join(f"{{{name}}}" for name in values)


def _part_of_path(name: str, value: str, job: JobSummary) -> str:
    """A value as part of a path: it leads neither up nor into another folder."""
    part = "".join("_" if letter == "/" or not letter.isprintable() else letter for letter in value)
    if part in ("", ".", ".."):
        raise InvalidInput(f"{{{name}}} of job {job.id} is {value!r}, which is no name of a folder")
    return part
