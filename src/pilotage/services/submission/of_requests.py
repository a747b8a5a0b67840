"""Submissions whose jobs work for a request: closed, with all of their jobs, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.json_format import description_to_json
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.pool.state import Pool
from pilotage.services.submission.job_creation import ChunkRows, create_immediately
from pilotage.store.tables import chunks, submissions
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input

ELEMENT_JOB = "element_job"
"""The only parameter of such jobs: the id of the element job."""


@dataclass(frozen=True, slots=True)
class RequestJobs:
    """The facts that all jobs of a batch share."""

    request: int
    owner: str
    group: str
    description: JobDescription
    text: str
    """JSON of the description."""
    inputs: str
    """JSON list of the uploaded inputs."""
    identity: QueueIdentity

    @classmethod
    def of(
        cls,
        request: int,
        owner: str,
        group: str,
        description: JobDescription,
        inputs: Sequence[Input],
        identity: QueueIdentity,
    ) -> RequestJobs:
        """The texts are made once, for all batches of equal jobs."""
        text = json.dumps(description_to_json(description), sort_keys=True)
        uploads = json.dumps([asdict(item) for item in inputs])
        return cls(request, owner, group, description, text, uploads, identity)


def submit_element_jobs(
    pool: Pool, tx: Transaction, batch: RequestJobs, element_jobs: Sequence[int], now: float
) -> JobId:
    """Create one waiting job for each element job. Returns the id of the first; the others follow in order."""
    description, count = batch.description, len(element_jobs)
    queue = submissions.get_or_insert_queue(tx.connection, batch.identity, now)
    pool.ids.rewind_on_rollback(tx)
    row = submissions.SubmissionRow(
        id=SubmissionId(pool.ids.submissions.next()),
        owner=batch.owner,
        group=batch.group,
        key=None,
        submitted=now,
        description=batch.text,
        inputs=batch.inputs,
        names=(ELEMENT_JOB,),
        job_name=description.job_name,
        job_group=description.job_group,
        job_type=description.job_type,
        queue=queue,
        first_job=JobId(pool.ids.jobs.run(count)),
        count=count,
        warnings=(),
        touched=now,
        request=batch.request,
    )
    submissions.insert(tx.connection, row)
    given = ChunkRows(tuple(f"[{job}]" for job in element_jobs), count)
    chunk = ChunkRow(row.id, 0, "", row.first_job, count, 0, now)
    create_immediately(pool, tx, chunk, given)
    chunks.insert(tx.connection, ChunkRow(row.id, 0, "", row.first_job, count, count, now), "[]")
    return row.first_job
