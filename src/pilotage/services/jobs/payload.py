"""Payloads: jobs in the form that pilots receive."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pilotage.core.jobs.description import COPY, OF_JOB, InputFile, JobDescription
from pilotage.core.jobs.in_place import NO_ARRAY, filled_name
from pilotage.core.jobs.job_binding import bound_description, texts_with_placeholders
from pilotage.core.jobs.job_outputs import JobOutput, job_output
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.per_job_inputs import PerJobFile, named_values, per_job_files
from pilotage.services.pool.records import SubmissionFacts
from pilotage.store.tables.listing import JobFacts
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.wire.pilot import Input, Payload


def payload(facts: SubmissionFacts, job: int, parameters: str | None) -> Payload:
    """The payload of a job; `parameters` is the JSON of its row. Jobs without placeholders share one payload."""
    common = facts.common.get("")
    if common is None:
        row = facts.row
        values = json.loads(parameters) if parameters else []
        bound = bound_description(
            facts.description, row.names, values, job, row.first_job, row.expected or row.count
        )
        if bound.stdout_file or bound.stderr_file:
            bound = _with_file_names(bound, row, values, job)
        own = per_job_files(facts.description, row.names, values)
        common = _payload(facts, bound, own)
        if not own and not any("%" in text for text in texts_with_placeholders(facts.description)):
            facts.common[""] = common
    return common


def _payload(facts: SubmissionFacts, description: JobDescription, own: Mapping[int, PerJobFile]) -> Payload:
    row = facts.row
    return Payload(
        executable=description.executable,
        arguments=list(description.arguments),
        environment=dict(description.environment),
        inputs=_inputs(description.input_sandbox, facts.inputs, own),
        outputs=list(description.output_sandbox),
        std_output=description.std_output,
        std_error=description.std_error,
        setup_lines=list(description.setup_lines),
        container=description.container,
        wall_time=description.wall_time,
        warn=description.warn,
        cpu_time=description.cpu_time,
        memory=description.memory,
        disk=description.disk,
        processors=description.processors,
        on_cutoff=description.on_cutoff,
        log_level=description.log_level,
        owner=row.owner,
        group=row.group,
        name=description.job_name,
        folder=description.folder,
        stdout_file=description.stdout_file,
        stderr_file=description.stderr_file,
        open_mode=description.open_mode,
        folder_mark=description.folder_mark,
        umask=description.umask,
    )


def parameter_values(facts: JobFacts) -> dict[str, Any]:
    """The values of one job by the names of its submission's parameters."""
    values = json.loads(facts.parameters) if facts.parameters else []
    return named_values(json.loads(facts.names), values)


def has_input(facts: JobFacts, digest: str) -> bool:
    """Whether an uploaded file with this digest is an input of the job."""
    if any(item["source"] == digest and item["mode"] == COPY for item in json.loads(facts.inputs)):
        return True
    values = json.loads(facts.parameters) if facts.parameters else []
    description = description_from_json(json.loads(facts.description))
    own = per_job_files(description, json.loads(facts.names), values) if values else {}
    return any(file.digest == digest for file in own.values())


def job_output_named(facts: JobFacts, job: int, name: str) -> JobOutput | None:
    """The output of another job that a job has as the input `name`; None: it has no such input."""
    inputs = stored_description(facts, job).input_sandbox
    sources = (file.source for file in inputs if file.mode == OF_JOB and file.name == name)
    return next(map(job_output, sources), None)


def stored_description(facts: JobFacts, job: int) -> JobDescription:
    """The description of one job, with its placeholders replaced."""
    values = json.loads(facts.parameters) if facts.parameters else []
    description = description_from_json(json.loads(facts.description))
    return bound_description(
        description, json.loads(facts.names), values, job, facts.first_job, facts.job_count
    )


def _with_file_names(
    description: JobDescription, row: SubmissionRow, values: Sequence[Any], job: int
) -> JobDescription:
    """The description with the files of a job in place named for this job."""
    number = dict(zip(row.names, values, strict=True)).get("", NO_ARRAY)
    known: dict[str, str | int] = {
        "j": job,
        "A": row.first_job,
        "a": number if isinstance(number, int) else str(number),
        "x": description.job_name,
        "u": row.owner,
    }
    return replace(
        description,
        stdout_file=filled_name(description.stdout_file, known),
        stderr_file=filled_name(description.stderr_file, known),
    )


def _inputs(
    named: Sequence[InputFile], uploaded: Sequence[Input], own: Mapping[int, PerJobFile]
) -> list[Input]:
    """The inputs of one job. A named folder has become one uploaded input per file.

    `own` maps an index in `named` to the file that only this job has.
    """
    inputs = []
    for place, item in enumerate(named):
        if place in own:
            digest, size, executable = own[place]
            inputs.append(Input(item.name, COPY, digest, size, executable))
            continue
        if item.mode != COPY:
            inputs.append(Input(item.name, item.mode, item.source, 0, item.executable))
            continue
        below = item.name + "/"
        inputs += [file for file in uploaded if file.name == item.name or file.name.startswith(below)]
    return inputs
