"""A submission once more: its description and values, with the files as they are now.

The server stores the path of each sent file as it was given. A file that is at this path now, seen from the working
folder, is taken. Another file is taken as it was sent, if the server still has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client import inputs
from pilotage.client.description import LocalDescription
from pilotage.client.inputs import LocalFile
from pilotage.client.own_files import OwnFiles, find_own_files, row_value
from pilotage.client.submission import SubmissionUpload
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import Submission
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parametric import uses_job_number
from pilotage.core.jobs.per_job_inputs import (
    RERUN_COLUMN,
    decode_file,
    is_internal_column,
    per_job_columns,
)

if TYPE_CHECKING:
    from pilotage.wire.submissions import SubmissionSource, UploadedInput

MissingDigests = Callable[[Sequence[str]], Sequence[str]]
"""Which of these digests of input files the server does not have."""


@dataclass
class Resubmission:
    """A prepared submission, and the local paths or names of its inputs by origin."""

    prepared: SubmissionUpload
    changed: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    as_sent: list[str] = field(default_factory=list)
    """Not in the folder: taken as they were sent."""


def describe_resubmission(source: SubmissionSource, folder: Path) -> LocalDescription:
    """The chosen jobs of a source as a submission whose files lie in `folder`."""
    # The conditions of these jobs have been decided: the new ones depend on nothing.
    description = replace(
        description_from_json(source.description),
        after=(),
        after_ok=(),
        after_fail=(),
        after_each=(),
        hold=False,
    )
    given = [place for place, name in enumerate(source.names) if not is_internal_column(name)]
    rows = tuple(tuple(job.values[place] for place in given) for job in source.jobs)
    if given and uses_job_number(description):
        raise InvalidInput(
            f"submission {source.submission} numbers its jobs by %n, and these would get other numbers",
            hint="`pilotage reschedule` runs them with theirs; or submit with a parameter instead of %n",
        )
    names = tuple(source.names[place] for place in given)
    return LocalDescription(Submission(description, names, rows if given else ()), folder)


def prepare_resubmission(
    source: SubmissionSource, described: LocalDescription, *, key: str = "", missing: MissingDigests
) -> Resubmission:
    """Gather the files; nothing is sent. `missing`: the digests of files that the server no longer has."""
    submission = described.submission
    again = Resubmission(SubmissionUpload(wire.submissions.SubmitRequest(), ()))
    stored: dict[str, str] = {}
    own, own_files = _own_files(source, described, again, stored)
    here: list[tuple[str, Path]] = []
    kept: list[UploadedInput] = []
    for name, path in described.copied(own):
        if path.exists():
            here.append((name, path))
        else:
            kept += _stored_inputs(source, name, path)
    _require_stored(stored | {file.digest: file.name for file in kept}, missing)
    files = inputs.gather_files(here)
    given: Sequence[Sequence[Any]] = submission.parameters or ((),) * len(source.jobs)
    rows = [
        [*row, *(values[index] for values in own.values()), job.job]
        for index, (row, job) in enumerate(zip(given, source.jobs, strict=True))
    ]
    request = wire.submissions.SubmitRequest(
        description=described.as_mapping(),
        parameters=wire.submissions.Parameters(
            [*submission.names, *(f"@{place}" for place in own), RERUN_COLUMN], rows
        ),
        inputs=[*(file.uploaded() for file in files), *kept],
        group=source.group,
        key=key or str(uuid.uuid4()),
    )
    varying = any(place not in own for place, _ in described.varying(submission.names))
    again.prepared = SubmissionUpload(request, tuple(files), tuple(own_files), varying)
    again.as_sent += [file.name for file in kept]
    before = {file.name: file.digest for file in source.inputs}
    for sent in files:
        (again.same if before.get(sent.name) == sent.digest else again.changed).append(sent.name)
    return again


def _own_files(
    source: SubmissionSource,
    described: LocalDescription,
    again: Resubmission,
    stored: dict[str, str],
) -> tuple[dict[int, list[str]], list[LocalFile]]:
    """The input files of single jobs: by place in the input sandbox, and the files to upload.

    Adds files that are taken as they were sent to `stored`: their names by digest.
    """
    submission = described.submission
    columns = per_job_columns(description_from_json(source.description), source.names)
    sent = {place: [job.values[column] for job in source.jobs] for place, column in columns.items()}
    first = submission.parameters[0] if submission.parameters else None
    varying = find_own_files(described, submission.names, submission.count, first)
    templates = dict(varying.templates)
    own: dict[int, list[str]] = {}
    files: list[LocalFile] = []
    for place, template in templates.items():
        paths = OwnFiles(((place, template),), varying.names, varying.count)
        own[place] = []
        for index, row in enumerate(submission.parameters):
            [path] = paths.paths(row, index)
            before = sent[place][index] if place in sent else None
            if path.is_file() or before is None:
                [file] = paths.files(row, index)
                own[place].append(row_value(file))
                files.append(file)
                (again.same if own[place][-1] == before else again.changed).append(str(path))
            else:
                own[place].append(before)
                _keep_stored(str(path), before, again, stored)
    for place, values in sent.items():
        name = submission.description.input_sandbox[place].name
        if place not in templates and name not in described.local:
            own[place] = list(values)
            for value in values:
                _keep_stored(name, value, again, stored)
    return own, files


def _keep_stored(name: str, value: str, again: Resubmission, stored: dict[str, str]) -> None:
    """Use the file of one job as it was sent."""
    stored[decode_file(value).digest] = name
    if name not in again.as_sent[-1:]:
        again.as_sent.append(name)


def _stored_inputs(source: SubmissionSource, name: str, path: Path) -> list[UploadedInput]:
    """The stored inputs with this name: one file, or all files of a folder."""
    matching = [file for file in source.inputs if file.name == name or file.name.startswith(name + "/")]
    if not matching:
        raise InvalidInput(f"there is no input {path}", hint=f"name it: --input PATH={name}")
    return matching


def _require_stored(names: Mapping[str, str], missing: MissingDigests) -> None:
    """Raise InvalidInput if the server lacks one of these files: `names` by digest."""
    for digest in missing(list(names)) if names else ():
        name = names[digest]
        raise InvalidInput(
            f"the input {name} is not in this folder, and the server no longer has it",
            hint=f"go to its folder, or name it: --input PATH={name}",
        )
