"""A description as JSON, the way a submission keeps it: defaults left out."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import InputFile, JobDescription

HIDDEN = "(hidden)"


def description_to_json(description: JobDescription) -> dict[str, Any]:
    """A dictionary for `json.dumps`, from which `description_from_json` makes an equal description."""
    plain: dict[str, Any] = {}
    for one in fields(JobDescription):
        value = getattr(description, one.name)
        if value == one.default:
            continue
        if one.name == "environment":
            value = dict(value)
        elif one.name == "input_sandbox":
            value = [asdict(file) for file in value]
        elif isinstance(value, tuple):
            value = list(value)
        plain[one.name] = value
    return plain


def hide_environment_values(plain: dict[str, Any]) -> dict[str, Any]:
    """The same for people other than the owner: of the environment's variables the names alone."""
    if "environment" not in plain:
        return plain
    return {**plain, "environment": dict.fromkeys(plain["environment"], HIDDEN)}


def description_from_json(plain: dict[str, Any]) -> JobDescription:
    """What `description_to_json` was given. It was checked then and is not checked again."""
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
        raise InvalidInput(f"the stored description is not of this version: {error}") from error
