"""Submission: builds requests from a description and its local files. Requests are safe to repeat."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client.description import LocalDescription
    from pilotage.client.inputs import LocalFile, Progress
    from pilotage.client.own_files import OwnFiles
    from pilotage.client.row_upload import GivenRow
    from pilotage.client.row_upload import Progress as RowsProgress
    from pilotage.core.jobs.description import Submission
    from pilotage.wire.submissions import (
        OpenRequest,
        Parameters,
        SubmissionCheck,
        SubmitRequest,
        SubmitResponse,
    )


@dataclass(frozen=True)
class SubmissionUpload:
    """A complete request, and the files to upload before it."""

    request: SubmitRequest
    files: tuple[LocalFile, ...]
    own: tuple[LocalFile, ...] = ()
    """Files that the rows name."""
    whole: bool = False
    """Cannot be sent in chunks, since jobs have input folders of their own."""

    @property
    def count(self) -> int:
        return len(self.request.parameters.rows) if self.request.parameters else 1

    @property
    def in_chunks(self) -> bool:
        """Whether the request has too many rows for one message."""
        return self.count > wire.submissions.MAX_CHUNK_ROWS and not self.whole


@dataclass(frozen=True)
class PreparedRows:
    """The request that opens a submission in chunks, the shared input files, and the input files of single jobs."""

    request: OpenRequest
    files: list[LocalFile]
    own: OwnFiles


class SubmitMethods(TypedRequests):
    """Methods of the client that submit jobs."""

    def submit(
        self,
        description: Mapping[str, Any],
        *,
        values: Sequence[Any] | None = None,
        parameters: Parameters | None = None,
        folder: Path | str = ".",
        group: str = "",
        key: str = "",
    ) -> SubmitResponse:
        """Submit one job, or one job per value of `values` ("%s" in the description) or per row of `parameters`.

        `description` has the fields of docs/reference/job-description.md. Files of its input_sandbox are read from
        `folder`. `group` is the group to submit as, by default the group of the token.

        `key` is an idempotency key: a repeated call with the same key returns the first answer and creates no jobs.
        Without a key each call is a new submission; lost answers are retried without duplicates in either case.
        Raises InvalidInput for an invalid description or an unreadable file.
        """
        from pilotage.client.description import from_mapping

        mapping = dict(description)
        if values is not None:
            mapping["parameters"] = list(values)
        elif parameters is not None:
            mapping["parameters"] = parameters_by_name(parameters)
        return self.send(prepare(from_mapping(mapping, folder=Path(folder)), group=group, key=key))

    def submit_rows(
        self,
        description: Mapping[str, Any],
        rows: Iterable[GivenRow],
        *,
        names: Sequence[str] = ("",),
        expected: int | None = None,
        folder: Path | str = ".",
        group: str = "",
        key: str = "",
        progress: RowsProgress | None = None,
    ) -> SubmitResponse:
        """Submit one job per row. Rows are read while they are sent, so their number is not limited by memory.

        A row has one value for each of `names`; with a single name it may be the value itself. Jobs may start before
        all rows are sent. `expected` is an upper bound of the number of rows; "%n" in the description needs it.
        `progress` is called with (rows stored, `expected`).

        After a failure, repeat the call with the same `key` and all rows: stored rows are skipped. If no key was
        given, the error's hint has the generated one. Raises InvalidInput for an invalid row, and Conflict if rows
        differ from the rows stored under this key.
        """
        from pilotage.client.description import from_mapping

        described = from_mapping(dict(description), folder=Path(folder))
        prepared = prepare_rows(described, names, group=group, key=key, expected=expected)
        return self.send_prepared_rows(prepared, rows, progress)

    def send_prepared_rows(
        self,
        prepared: PreparedRows,
        rows: Iterable[GivenRow],
        progress: RowsProgress | None = None,
        uploading: Progress | None = None,
    ) -> SubmitResponse:
        """Upload missing files, then send the rows in chunks. Files of single jobs are uploaded before their rows."""
        from pilotage.client import inputs

        if prepared.own.templates:
            rows = prepared.own.extended(rows, lambda files: inputs.upload(self._transport, files))
        return self.send_rows(prepared.request, prepared.files, rows, progress, uploading)

    def send_rows(
        self,
        request: OpenRequest,
        files: Sequence[LocalFile],
        rows: Iterable[GivenRow],
        progress: RowsProgress | None = None,
        uploading: Progress | None = None,
    ) -> SubmitResponse:
        """Upload missing files, then send the rows in chunks."""
        from pilotage.client import inputs, row_upload

        if files:
            inputs.upload(self._transport, files, uploading)
        return row_upload.send_rows(self._transport, request, rows, progress)

    def check(self, prepared: SubmissionUpload) -> SubmissionCheck:
        """Validate a submission on the server: return its warnings, raise its errors. Nothing is stored."""
        if prepared.in_chunks:
            return self.check_rows(_open_request(prepared))
        return self.call(wire.submissions.CHECK_SUBMISSION, prepared.request)

    def check_rows(self, request: OpenRequest) -> SubmissionCheck:
        """Validate a submission in chunks on the server: return its warnings, raise its errors."""
        return self.call(wire.submissions.CHECK_OPEN, request)

    def submit_file(self, path: Path | str, *, group: str = "", key: str = "") -> SubmitResponse:
        """Submit a JDL, YAML or JSON file with one description. Input paths are relative to its folder.

        `group`, `key`: see `submit`.
        """
        from pilotage.client.description import read_description_file

        return self.send(prepare(read_description_file(Path(path)), group=group, key=key))

    def send(
        self, prepared: SubmissionUpload, progress: Progress | None = None, rows: RowsProgress | None = None
    ) -> SubmitResponse:
        """Upload missing files, then submit; in chunks if there are many rows."""
        from pilotage.client import inputs

        whole = prepared.request
        if prepared.in_chunks:
            assert whole.parameters is not None
            files = [*prepared.files, *prepared.own]
            return self.send_rows(_open_request(prepared), files, whole.parameters.rows, rows, progress)
        if prepared.files or prepared.own:
            inputs.upload(self._transport, [*prepared.files, *prepared.own], progress)
        return self.call(wire.submissions.SUBMIT, prepared.request)


def _open_request(prepared: SubmissionUpload) -> OpenRequest:
    """The request that opens a submission in chunks."""
    whole = prepared.request
    assert whole.description is not None
    assert whole.parameters is not None
    names = whole.parameters.names
    return wire.submissions.OpenRequest(
        whole.description, names, whole.key, whole.inputs, whole.group, prepared.count
    )


def prepare(described: LocalDescription, *, group: str = "", key: str = "") -> SubmissionUpload:
    """Build the request and hash the inputs; nothing is sent. Raises InvalidInput."""
    from pilotage.client import inputs
    from pilotage.client.own_files import find_own_files

    submission = described.submission
    first = submission.parameters[0] if submission.parameters else None
    own = find_own_files(described, submission.names, submission.count, first)
    parameters, own_files = _parameters(submission, own)
    places = frozenset(place for place, _ in own.templates)
    files = inputs.gather_files(described.copied(places))
    request = wire.submissions.SubmitRequest(
        description=described.as_mapping(),
        parameters=parameters,
        inputs=[file.uploaded() for file in files],
        group=group,
        key=key or str(uuid.uuid4()),
    )
    folders = any(place not in places for place, _ in described.varying(submission.names))
    return SubmissionUpload(request, tuple(files), own_files, folders)


def _parameters(submission: Submission, own: OwnFiles) -> tuple[Parameters | None, tuple[LocalFile, ...]]:
    """The rows extended by the input files of single jobs, and these files."""
    if not submission.names:
        return None, ()
    files: list[LocalFile] = []
    given = own.extended(submission.parameters, files.extend) if own.templates else submission.parameters
    rows = [list(row) for row in given]
    return wire.submissions.Parameters([*submission.names, *own.columns], rows), tuple(files)


def prepare_rows(
    described: LocalDescription,
    names: Sequence[str],
    *,
    group: str = "",
    key: str = "",
    expected: int | None = None,
) -> PreparedRows:
    """Build the request that opens a submission in chunks and hash its inputs; nothing is sent.

    Raises InvalidInput for errors that do not depend on the rows.
    """
    from pilotage.client import inputs
    from pilotage.client.own_files import find_own_files
    from pilotage.core.jobs.parametric import uses_job_number
    from pilotage.core.jobs.parsers import parse_yaml_mapping

    if described.submission.names:
        raise InvalidInput("the description has parameters of its own, so rows cannot be given")
    mapping = described.as_mapping()
    own = find_own_files(described, names, expected, None)
    paths = [text for _, text in own.templates]
    description = parse_yaml_mapping(mapping, names=[*names, *own.columns]).description
    if expected is None and (uses_job_number(description) or any("%n" in text for text in paths)):
        raise InvalidInput(
            "%n needs the number of rows, which is not known",
            hint="read the rows from a file, pass `expected`, or number the rows in a column",
        )
    files = inputs.gather_files(described.copied(frozenset(place for place, _ in own.templates)))
    request = wire.submissions.OpenRequest(
        mapping,
        [*names, *own.columns],
        key or str(uuid.uuid4()),
        [file.uploaded() for file in files],
        group,
        expected,
    )
    return PreparedRows(request, files, own)


def parameters_by_name(parameters: Parameters) -> dict[str, list[Any]]:
    """The values by name, in the form of a description's `parameters`."""
    for number, row in enumerate(parameters.rows, 1):
        if len(row) != len(parameters.names):
            raise InvalidInput(
                f"row {number} of the parameters has {plural(len(row), 'value')}, not {len(parameters.names)}"
            )
    return {name: [row[place] for row in parameters.rows] for place, name in enumerate(parameters.names)}
