"""Answers with the bytes of stored files, from the folder of the server or from an S3 service."""

from __future__ import annotations

from itertools import chain

from fastapi import Response
from fastapi.responses import FileResponse, StreamingResponse

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.server.context import Context
from pilotage.server.http.stored_outputs import has_applied_result, inline_streams, stored_files
from pilotage.server.sandbox_objects import pieces_of
from pilotage.store.tables import attempts
from pilotage.store.tables.listing import JobFacts


def output_response(context: Context, facts: JobFacts, job: int, name: str) -> Response:
    """The bytes of one output. Raises NotFound."""
    epoch = facts.finished_epoch
    result = attempts.result_of(context.readers.connection(), JobId(job), epoch)
    inline = inline_streams(facts, job, result).get(name)
    if inline is not None:
        return Response(inline, media_type="application/octet-stream")
    if not (result is not None and has_applied_result(facts)) and name not in stored_files(
        context.disk.sandbox, facts, job, result
    ):
        raise NotFound(f"job {job} has no output {name}")
    stored = context.disk.sandbox.open_output(job, epoch, name)
    if not isinstance(stored, ObjectRecord):
        return FileResponse(stored, media_type="application/octet-stream")
    return object_response(context, stored)


def object_response(context: Context, record: ObjectRecord) -> StreamingResponse:
    """The bytes of an object. A refusal of the service is raised before the answer begins."""
    pieces = pieces_of(context, record)
    first = next(pieces, b"")
    headers = {"Content-Length": str(record.size)}
    return StreamingResponse(chain([first], pieces), headers=headers, media_type="application/octet-stream")
