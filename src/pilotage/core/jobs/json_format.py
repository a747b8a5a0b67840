"""Job descriptions as JSON, as the database stores them: without fields at their default."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import InputFile, JobDescription

HIDDEN = "(hidden)"


def description_to_json(description: JobDescription) -> dict[str, Any]:
    """A dictionary for `json.dumps`; `description_from_json` restores an equal description from it."""
    plain: dict[str, Any] = {}
    for field in fields(JobDescription):
        value = getattr(description, field.name)
        if value == field.default:
            continue
        if field.name == "environment":
            value = dict(value)
        elif field.name == "input_sandbox":
            value = [asdict(file) for file in value]
        elif isinstance(value, tuple):
            value = list(value)
        plain[field.name] = value
    return plain


def hide_environment_values(plain: dict[str, Any]) -> dict[str, Any]:
    """A copy for users other than the owner: environment variables keep their names, but not their values."""
    if "environment" not in plain:
        return plain
    return {**plain, "environment": dict.fromkeys(plain["environment"], HIDDEN)}


def description_from_json(plain: dict[str, Any]) -> JobDescription:
    """The inverse of `description_to_json`. The description was checked before and is not checked again."""
    values: dict[str, Any] = {}
    for name, value in plain.items():
        if name == "environment":
            values[name] = tuple(value.items())
        elif name == "input_sandbox":
            values[name] = tuple(InputFile(**file) for file in value)
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return JobDescription(**values)
    except TypeError as error:
        raise InvalidInput(f"the stored job description does not belong to this version: {error}") from error
