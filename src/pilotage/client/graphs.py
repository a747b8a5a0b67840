"""Graphs: documents with several named jobs that depend on each other."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import MAX_JOBS, OF_JOB
from pilotage.core.jobs.graphs import (
    AcceptedName,
    NamedJob,
    check_sources,
    read_graph,
    source_with_id,
    with_ids,
)
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client.submission import SubmissionUpload
    from pilotage.wire.submissions import NamedSubmission, SubmitResponse

MAX_REQUEST_JOBS = 5000
"""Jobs of one request, unless a single submission has more."""


@dataclass(frozen=True)
class PreparedJob:
    """A named job of a document, with its request and its files."""

    named: NamedJob
    upload: SubmissionUpload


class GraphMethods(TypedRequests):
    """The method of the client that submits graphs."""

    def submit_graph(
        self, document: Mapping[str, Any], *, folder: Path | str = ".", group: str = "", key: str = ""
    ) -> dict[str, SubmitResponse]:
        """Submit the named jobs of `document["jobs"]`; returns the answers by name.

        Each job is a description, and may name others in `after`, `after_ok`, `after_fail` and `after_each`. Files are
        read from `folder`. The same `key` again goes on after a failure, and creates no job twice.
        """
        return self.send_graph(prepare_graph(document, folder=Path(folder), group=group, key=key))

    def send_graph(self, prepared: Sequence[PreparedJob]) -> dict[str, SubmitResponse]:
        """Upload missing files, then submit the jobs, each after its parents, in as few requests as possible."""
        from pilotage.client import inputs

        files = {file.digest: file for job in prepared for file in (*job.upload.files, *job.upload.own)}
        if files:
            inputs.upload(self._transport, list(files.values()))
        answers: dict[str, SubmitResponse] = {}
        for part in _parts(prepared):
            known = {name: AcceptedName(answer.submission, answer.first) for name, answer in answers.items()}
            request = wire.submissions.GraphRequest([_named(job, known) for job in part])
            response = self.call(wire.submissions.SUBMIT_GRAPH, request)
            answers |= dict(zip((job.named.name for job in part), response.submissions, strict=True))
        return answers


def prepare_graph(
    document: Mapping[str, Any], *, folder: Path = Path(), group: str = "", key: str = ""
) -> list[PreparedJob]:
    """Check a document and hash its inputs; nothing is sent. Raises InvalidInput, also for a cycle with its path."""
    from pilotage.client.description import from_mapping
    from pilotage.client.submission import prepare

    key = key or str(uuid.uuid4())
    prepared = []
    for named in read_graph(document):
        try:
            described = from_mapping(named.mapping, folder=folder)
        except InvalidInput as error:
            error.message = f"job {named.name}: {error.message}"
            raise
        prepared.append(PreparedJob(named, prepare(described, group=group, key=f"{key}/{named.name}")))
    check_sources((job.named for job in prepared), {job.named.name: job.upload.count for job in prepared})
    total = sum(job.upload.count for job in prepared)
    if total > MAX_JOBS:
        raise InvalidInput(f"the document makes {plural(total, 'job')}; the limit is {MAX_JOBS:,}")
    return prepared


def _parts(prepared: Sequence[PreparedJob]) -> list[list[PreparedJob]]:
    parts: list[list[PreparedJob]] = []
    jobs = 0
    for job in prepared:
        jobs += job.upload.count
        if not parts or jobs > MAX_REQUEST_JOBS or len(parts[-1]) == wire.submissions.MAX_GRAPH:
            parts.append([])
            jobs = job.upload.count
        parts[-1].append(job)
    return parts


def _named(job: PreparedJob, known: Mapping[str, AcceptedName]) -> NamedSubmission:
    request = job.upload.request
    parents: dict[str, Any] = {field: list(given) for field, given in with_ids(job.named, known).items()}
    description = dict(request.description or {})
    if job.named.sources:
        description["input_sandbox"] = [
            {**item, "path": source_with_id(item["path"], known)} if item.get("mode") == OF_JOB else item
            for item in description["input_sandbox"]
        ]
    return wire.submissions.NamedSubmission(
        description=description,
        parameters=request.parameters,
        inputs=request.inputs,
        group=request.group,
        key=request.key,
        name=job.named.name,
        **parents,
    )
