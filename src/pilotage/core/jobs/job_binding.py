"""The description of one job: the placeholders of its parameters and of its id are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import bind


def bound_description(
    description: JobDescription, names: Sequence[str], values: Sequence[Any], job: int, first: int, count: int
) -> JobDescription:
    """The description of the job `job` of a submission whose first one is `first`."""
    bound = bind(description, names, values, job - first, count) if names else description
    # Any description may contain the placeholder of the job's id.
    if any("%j" in text for text in texts_with_placeholders(bound)):
        bound = _with_id(bound, str(job))
    return bound


def texts_with_placeholders(description: JobDescription) -> Iterator[str]:
    """The texts in which placeholders are replaced."""
    yield description.executable
    yield from description.arguments
    yield from (value for _, value in description.environment)
    yield from description.output_sandbox
    yield from (description.std_output, description.std_error, description.job_name)
    yield from (description.stdout_file, description.stderr_file)
    yield from (text for item in description.input_sandbox for text in (item.name, item.source))


def _with_id(description: JobDescription, job: str) -> JobDescription:
    def fill(text: str) -> str:
        return text.replace("%j", job)

    return replace(
        description,
        arguments=tuple(map(fill, description.arguments)),
        environment=tuple((name, fill(value)) for name, value in description.environment),
        output_sandbox=tuple(map(fill, description.output_sandbox)),
        std_output=fill(description.std_output),
        std_error=fill(description.std_error),
        job_name=fill(description.job_name),
    )
