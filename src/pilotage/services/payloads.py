"""A job as its pilot gets it."""

from __future__ import annotations

import json
from typing import Any

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import bind
from pilotage.services.pool import SubmissionFacts
from pilotage.store.jobs import JobRow
from pilotage.wire.pilot import Payload


def bound_description(facts: SubmissionFacts, job: int, parameters: str | None) -> JobDescription:
    """The description of one job, its parameters filled in."""
    row = facts.row
    values: list[Any] = json.loads(parameters) if parameters else []
    return bind(
        facts.description, dict(zip(row.names, values, strict=True)), job - row.first_job, row.count, job=job
    )


def payload(facts: SubmissionFacts, job: JobRow) -> Payload:
    """What to run, of a job in the store."""
    description = bound_description(facts, job.id, job.parameters)
    return Payload(
        executable=description.executable,
        arguments=list(description.arguments),
        environment=dict(description.environment),
        inputs=list(facts.inputs),
        outputs=list(description.output_sandbox),
        std_output=description.std_output,
        std_error=description.std_error,
        setup_lines=list(description.setup_lines),
        container=description.container,
        wall_time=description.wall_time,
        cpu_time=description.cpu_time,
        memory=description.memory,
        processors=description.processors,
        on_cutoff=description.on_cutoff,
        owner=facts.row.owner,
        group=facts.row.group,
        name=description.job_name,
    )
