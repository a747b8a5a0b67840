"""Replaces fields of a submission: command-line options override the job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pilotage.core.jobs.builder import WrittenAttribute, read_field
from pilotage.core.jobs.description import Scalar, Submission, validate_description
from pilotage.core.jobs.fields import BY_NAME
from pilotage.core.jobs.parametric import parameter_rows, validate_parameters


def override_fields(
    submission: Submission,
    fields: Mapping[str, Any],
    parameters: Mapping[str, tuple[Scalar, ...]] | None = None,
) -> Submission:
    """The submission with some fields replaced by plain values, as in YAML, and checked again.

    A value replaces the whole field. Environment variables and input files replace only entries of the same name.
    `parameters` replace all parameters.
    """
    description = submission.description
    names, given = submission.names, submission.parameters
    if parameters:
        names, given = tuple(parameters), parameter_rows(dict(parameters))
    values = {
        name: read_field(BY_NAME[name], WrittenAttribute(name, value), parametric=bool(names))
        for name, value in fields.items()
    }
    if "environment" in values:
        values["environment"] = tuple(
            {**dict(description.environment), **dict(values["environment"])}.items()
        )
    if "input_sandbox" in values:
        files = {file.name: file for file in (*description.input_sandbox, *values["input_sandbox"])}
        values["input_sandbox"] = tuple(files.values())
    return validate_parameters(Submission(validate_description(replace(description, **values)), names, given))
