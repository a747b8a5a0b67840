"""A submission once more: its description and values, with the files as they are now.

The server knows a sent file by its name in the job's folder, not where it lay. So a file of that name below the folder
is taken; one that is not there is taken as it was sent, if the server still has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pilotage.client import inputs
from pilotage.client.description import LocalDescription
from pilotage.client.inputs import LocalFile
from pilotage.client.submission import PreparedRequest
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import Submission
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parametric import uses_job_number
from pilotage.core.jobs.per_job_inputs import per_job_columns
from pilotage.wire.submissions import Parameters, SubmissionSource, SubmitRequest, UploadedInput


@dataclass
class Resubmission:
    """A prepared submission, and the names of its inputs by origin."""

    prepared: PreparedRequest
    changed: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    as_sent: list[str] = field(default_factory=list)
    """Not in the folder: taken as they were sent."""


def describe_resubmission(source: SubmissionSource, folder: Path) -> LocalDescription:
    """The chosen jobs of a source as a submission whose files lie in `folder`."""
    description = description_from_json(source.description)
    rows = tuple(tuple(job.values) for job in source.jobs)
    if source.names and uses_job_number(description):
        raise InvalidInput(
            f"submission {source.submission} numbers its jobs by %n, and these would get other numbers",
            hint="`pilotage reschedule` runs them with theirs; or submit with a parameter instead of %n",
        )
    return LocalDescription(
        Submission(description, tuple(source.names), rows if source.names else ()), folder
    )


def prepare_resubmission(
    source: SubmissionSource, described: LocalDescription, *, key: str = "", known: Callable[[str], bool]
) -> Resubmission:
    """Gather the files; nothing is sent. `known`: whether the server still has the file of a digest."""
    submission = described.submission
    own = per_job_columns(submission.description, submission.names)
    own_names = [submission.description.input_sandbox[place].name for place in own]
    for name in own_names:
        if name in described.local:
            raise InvalidInput(
                f"each job has a file {name} of its own", hint="submit new jobs with other files"
            )
    here: list[tuple[str, Path]] = []
    kept: list[UploadedInput] = []
    for name, path in described.copied(own):
        if path.exists():
            here.append((name, path))
        else:
            kept += _stored_inputs(source, name, path)
    _require_stored(kept, known)
    files = inputs.gather_files(here)
    parameters = Parameters(list(submission.names), [list(row) for row in submission.parameters])
    request = SubmitRequest(
        description=described.as_mapping(),
        parameters=parameters if submission.names else None,
        inputs=[*(file.uploaded() for file in files), *kept],
        group=source.group,
        key=key or str(uuid.uuid4()),
    )
    varying = any(place not in own for place, _ in described.varying(submission.names))
    again = Resubmission(
        PreparedRequest(request, tuple(files), (), varying),
        as_sent=[*own_names, *(file.name for file in kept)],
    )
    _compare(again, files, source.inputs)
    return again


def _stored_inputs(source: SubmissionSource, name: str, path: Path) -> list[UploadedInput]:
    """The stored inputs with this name: one file, or all files of a folder."""
    matching = [file for file in source.inputs if file.name == name or file.name.startswith(name + "/")]
    if not matching:
        raise InvalidInput(f"there is no input {path}", hint=f"name it: --input PATH={name}")
    return matching


def _require_stored(kept: Sequence[UploadedInput], known: Callable[[str], bool]) -> None:
    by_digest = {file.digest: file.name for file in kept}
    for digest, name in by_digest.items():
        if not known(digest):
            raise InvalidInput(
                f"the input {name} is not in this folder, and the server no longer has it",
                hint=f"go to its folder, or name it: --input PATH={name}",
            )


def _compare(again: Resubmission, files: Sequence[LocalFile], sent: Sequence[UploadedInput]) -> None:
    before = {file.name: file.digest for file in sent}
    for file in files:
        (again.same if before.get(file.name) == file.digest else again.changed).append(file.name)
