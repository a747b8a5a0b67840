"""Submission: a description and its local files become a request that may be repeated safely."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotage.client import inputs
from pilotage.client.answers import decode
from pilotage.client.describing import Described, from_mapping, read_file
from pilotage.client.inputs import LocalFile, Progress
from pilotage.client.transport import Transport
from pilotage.core.errors import InvalidInput
from pilotage.wire.people import Parameters, SubmitRequest, SubmitResponse


@dataclass(frozen=True)
class Prepared:
    """A request that is complete, and the files that must be at the server before it is sent."""

    request: SubmitRequest
    files: tuple[LocalFile, ...]

    @property
    def count(self) -> int:
        return len(self.request.parameters.rows) if self.request.parameters else 1


class Submitting:
    """The part of the client that submits."""

    _transport: Transport

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
        """Submit one job, or one for each of `values` ("%s" in the description) or rows of `parameters`.

        `description` has the names of docs/reference/job-description.md; the files of its input_sandbox are taken
        from `folder`.
        The same `key` again gives the first answer again and makes no more jobs; without one each call is its own
        submission, and a request whose answer was lost is still not doubled.
        """
        mapping = dict(description)
        if values is not None:
            mapping["parameters"] = list(values)
        elif parameters is not None:
            mapping["parameters"] = columns(parameters)
        return self.send(prepare(from_mapping(mapping, folder=Path(folder)), group=group, key=key))

    def submit_file(self, path: Path | str, *, group: str = "", key: str = "") -> SubmitResponse:
        """Submit a JDL, YAML or JSON file; its inputs are relative to its folder."""
        return self.send(prepare(read_file(Path(path)), group=group, key=key))

    def send(self, prepared: Prepared, progress: Progress | None = None) -> SubmitResponse:
        """Upload what the server lacks, then submit."""
        if prepared.files:
            inputs.upload(self._transport, prepared.files, progress)
        answer = self._transport.request("POST", "/v1/submissions", json=prepared.request, idempotent=True)
        return decode(answer.content, SubmitResponse)


def prepare(described: Described, *, group: str = "", key: str = "") -> Prepared:
    """Gather and hash the inputs; nothing is sent. Raises InvalidInput for what cannot be right."""
    submission = described.submission
    parameters = None
    if submission.names:
        parameters = Parameters(list(submission.names), [list(row) for row in submission.parameters])
    files = inputs.gather(described.copied())
    request = SubmitRequest(
        description=described.as_mapping(),
        parameters=parameters,
        inputs=[file.uploaded() for file in files],
        group=group,
        key=key or str(uuid.uuid4()),
    )
    return Prepared(request, tuple(files))


def columns(parameters: Parameters) -> dict[str, list[Any]]:
    """The values by name, as a description's `parameters` has them."""
    for number, row in enumerate(parameters.rows, 1):
        if len(row) != len(parameters.names):
            raise InvalidInput(
                f"row {number} of the parameters has {len(row)} values, not {len(parameters.names)}"
            )
    return {name: [row[place] for row in parameters.rows] for place, name in enumerate(parameters.names)}
