"""Routes for pilots' files: inputs, outputs, streamed output, and the program itself."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import FileResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from pilotage.core.ids import JobId, PilotId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.outside.batch.script import pilot_program
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.outside.storage.operations import S3Operation
from pilotage.server.context import Context, identity_of
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheContext
from pilotage.server.http.edge import binary_response
from pilotage.server.http.pilot_endpoints import MAX_TAIL
from pilotage.server.http.stored_file_responses import object_response, output_response
from pilotage.server.http.stored_objects import complete_output
from pilotage.server.http.stored_outputs import STREAMS, stream_names
from pilotage.server.sandbox_objects import delete_outputs_or_leave, signed_request
from pilotage.services.jobs.data_orders import element_job_of
from pilotage.services.jobs.payload import has_input, job_output_named
from pilotage.services.jobs.sandbox_objects import sandbox_object
from pilotage.services.jobs.storage_access import StorageAccess, access_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import attempts, listing, submissions
from pilotage.store.tables import pilots as pilot_rows
from pilotage.wire.limits import Digest, FileName, Id, Int32, Name, Offset
from pilotage.wire.pilot_calls import (
    READ_INPUT,
    READ_JOB_OUTPUT,
    READ_PROGRAM,
    STORE_OUTPUT,
    STORE_STREAM,
    STORE_TAIL,
)
from pilotage.wire.storage import (
    FIND_INPUT,
    GIVE_ADDRESS,
    RECORD_OUTPUT,
    AddressRequest,
    InputAddress,
    SentOutput,
    SignedAddress,
)

router = CallRouter("pilot")
_bearer = HTTPBearer(auto_error=False)


def pilot_of(
    request: Request,
    _documented: HTTPAuthorizationCredentials | None = Depends(_bearer),
) -> PilotId:
    """The pilot that sent a request."""
    identity = identity_of(request.scope)
    assert isinstance(identity, int)
    return identity


ThePilot = Annotated[PilotId, Depends(pilot_of)]


def _check_own_job(context: Context, pilot: PilotId, job: int, epoch: int | None) -> None:
    """Raise unless the pilot has the job, or had this attempt: only then may it access the job's files."""
    connection = context.readers.connection()
    facts = listing.job_facts(connection, job)
    if facts is None:
        raise NotFound(f"there is no job {job}")
    if facts.pilot_id == pilot and epoch in (None, facts.epoch):
        return
    if epoch is not None and attempts.pilot_of_attempt(connection, JobId(job), epoch) == pilot:
        return
    raise Forbidden(f"job {job} is not this pilot's", hint="stop its payload")


def _check_unfinished(context: Context, pilot: PilotId, job: int, epoch: int) -> None:
    """Raise unless this is the pilot's own attempt and its finish may still be applied.

    Raises Conflict afterwards: the files of an applied result no longer change.
    """
    _check_own_job(context, pilot, job, epoch)
    facts = listing.job_facts(context.readers.connection(), job)
    if facts is None or epoch != facts.epoch or epoch <= facts.finished_epoch:
        raise Conflict(f"epoch {epoch} of job {job} is over: its files are no longer accepted", hint="go on")


@router.call(READ_INPUT)
def fetch_input(job: Id, digest: Digest, context: TheContext, pilot: ThePilot) -> Response:
    """The bytes of one input file of a job, for the pilot that has the job. Files of an S3 service are passed on."""
    record = _input_record(context, pilot, job, digest)
    path = context.disk.sandbox.input_path(digest)
    if record is not None and not path.exists():
        return object_response(context, record)
    return FileResponse(path, media_type="application/octet-stream")


@router.call(FIND_INPUT)
def find_input(job: Id, digest: Digest, context: TheContext, pilot: ThePilot) -> InputAddress:
    """The address of an input file in an S3 service. The pilot asks for a signed one before each use."""
    record = _input_record(context, pilot, job, digest)
    storage = None if record is None else context.pool.policy.storage_with(record.url)
    if record is None or storage is None:
        return InputAddress()
    return InputAddress(record.url, storage[1].patience)


def _input_record(context: Context, pilot: PilotId, job: int, digest: str) -> ObjectRecord | None:
    """The record of an input of a job in an S3 service; None: it is in the folder. Raises if it is no input."""
    _check_own_job(context, pilot, job, None)
    facts = listing.job_facts(context.readers.connection(), job)
    if facts is None or not has_input(facts, digest):
        raise NotFound(f"job {job} has no such input")
    return context.disk.sandbox.input_objects.find(facts.owner, digest)


@router.call(READ_JOB_OUTPUT)
def fetch_job_output(job: Id, name: FileName, context: TheContext, pilot: ThePilot) -> Response:
    """The bytes of an input that is the output of another job. `name`: of the input."""
    _check_own_job(context, pilot, job, None)
    connection = context.readers.connection()
    facts = listing.job_facts(connection, job)
    source = None if facts is None else job_output_named(facts, job, name)
    parent = None if source is None else listing.job_facts(connection, source.number)
    if source is None:
        raise NotFound(f"job {job} has no such input")
    if parent is None:
        raise NotFound(f"job {source.number} was deleted, with its output {source.path}")
    return output_response(context, parent, source.number, source.path)


@router.call(STORE_OUTPUT)
async def store_output(
    job: Id, epoch: Int32, name: FileName, request: Request, context: TheContext, pilot: ThePilot
) -> Response:
    """Store an output file. The same bytes again change nothing; other bytes under the same name are refused."""
    limit = context.pool.policy.jobs.max_output_file
    try:
        await asyncio.to_thread(_check_unfinished, context, pilot, job, epoch)
    except Conflict:
        # If the answer was lost, the finish may have arrived meanwhile: then the same bytes are still accepted.
        await context.disk.sandbox.compare_output(job, epoch, name, request.stream(), limit)
    else:
        await context.disk.sandbox.put_output(job, epoch, name, request.stream(), limit)
    return Response(status_code=201)


@router.call(RECORD_OUTPUT)
async def record_output(
    job: Id, epoch: Int32, body: SentOutput, context: TheContext, pilot: ThePilot
) -> Response:
    """Note that an output is complete in an S3 service, which is asked first. The same call again changes nothing."""
    path = context.disk.sandbox.output_record(job, epoch, body.name)
    try:
        await asyncio.to_thread(_check_unfinished, context, pilot, job, epoch)
    except Conflict:
        # If the answer was lost, the finish may have arrived meanwhile.
        record = context.disk.sandbox.objects.find(path)
        if record is None or (record.size, record.etag) != (body.size, body.etag):
            raise
    else:
        await complete_output(context, path, body)
    return Response(status_code=201)


@router.call(STORE_STREAM)
async def keep_stream(
    job: Id, epoch: Int32, stream: Name, request: Request, context: TheContext, pilot: ThePilot
) -> Response:
    """Store the standard output or error of a killed job as one of its outputs."""
    name = await asyncio.to_thread(_stream_output_name, context, pilot, job, epoch, stream)
    limit = context.pool.policy.jobs.max_output_file
    await context.disk.sandbox.put_output(job, epoch, name, request.stream(), limit)
    await asyncio.to_thread(_delete_outputs_if_deleted, context, job)
    return Response(status_code=201)


def _stream_output_name(context: Context, pilot: PilotId, job: int, epoch: int, stream: str) -> str:
    """The output name of a stream of a killed job. Raises Conflict unless this epoch was killed."""
    _check_own_job(context, pilot, job, epoch)
    facts = listing.job_facts(context.readers.connection(), job)
    if facts is None or facts.state != JobState.KILLED or epoch != facts.epoch:
        raise Conflict(f"epoch {epoch} of job {job} was not killed: its files are not accepted", hint="go on")
    names = dict(zip(STREAMS, stream_names(facts, job), strict=True))
    if stream not in names:
        raise InvalidInput(f"there is no stream {stream}", hint="stdout or stderr")
    return names[stream]


def _delete_outputs_if_deleted(context: Context, job: int) -> None:
    """Delete the files of a job that was deleted during the upload."""
    facts = listing.job_facts(context.readers.connection(), job)
    if facts is None or facts.state == JobState.DELETED:
        delete_outputs_or_leave(context, job)


@router.call(STORE_TAIL)
async def store_tail(
    job: Id,
    request: Request,
    stream: Name,
    epoch: Int32,
    context: TheContext,
    pilot: ThePilot,
    offset: Offset = 0,
) -> Response:
    """Store the newest output of a running job while somebody reads it."""
    if stream not in STREAMS:
        raise InvalidInput(f"there is no stream {stream}", hint="stdout or stderr")
    await asyncio.to_thread(_check_unfinished, context, pilot, job, epoch)
    data = await request.body()
    await asyncio.to_thread(context.disk.sandbox.append_tail, job, epoch, stream, offset, data[:MAX_TAIL])
    return Response(status_code=204)


@router.call(GIVE_ADDRESS)
async def give_address(
    job: Id, epoch: Int32, body: AddressRequest, context: TheContext, pilot: ThePilot
) -> SignedAddress:
    """An address for one request to an S3 service, if the job reads or writes this file.

    It can be used for a while, by anybody. So ask for it just before it is used.
    """
    policy, operation = context.pool.policy, S3Operation(*astuple(body))
    in_sandbox = sandbox_object(policy, context.pool.server.instance, body.url)
    if in_sandbox is not None and (digest := in_sandbox.input_digest(body.operation)):
        record = await asyncio.to_thread(_input_record, context, pilot, job, digest)
        if record is None or record.url != body.url:
            raise Forbidden("the job may not get this file of a sandbox")
        return SignedAddress(*signed_request(context, in_sandbox.place, operation))
    if in_sandbox is not None:
        name = in_sandbox.output_of(job, epoch, body.operation)
        await asyncio.to_thread(_begin_output, context, pilot, job, epoch, name, body)
        return SignedAddress(*signed_request(context, in_sandbox.place, operation))
    known = context.work.storage.access.get((job, epoch))
    access = await context.quick_read(
        lambda connection: _access(connection, context, pilot, job, epoch, known)
    )
    if known is None:
        context.work.storage.keep_access(job, epoch, access)
    place = access.place(policy, body.operation, body.url)
    return SignedAddress(*signed_request(context, place, operation))


def _begin_output(
    context: Context, pilot: PilotId, job: int, epoch: int, name: str, asked: AddressRequest
) -> None:
    """Note that an attempt writes an output. Raises Conflict if the output is complete, or the attempt over."""
    _check_unfinished(context, pilot, job, epoch)
    path = context.disk.sandbox.output_record(job, epoch, name)
    if context.disk.sandbox.objects.find(path) is not None:
        raise Conflict(f"{name[:80]!r} is stored", hint="what is stored stays")
    if asked.operation in ("put", "begin"):
        context.disk.sandbox.objects.begin(path, asked.url)


def _access(
    connection: Connection,
    context: Context,
    pilot: PilotId,
    job: int,
    epoch: int,
    known: StorageAccess | None,
) -> StorageAccess:
    """The rights of this attempt, which stay as they are once it has begun. Raises if it has none any more."""
    _check_unfinished(context, pilot, job, epoch)
    if known is not None:
        return known
    facts, row = listing.job_facts(connection, job), pilot_rows.by_id(connection, pilot)
    access = None
    if facts is not None and row is not None:
        submission = submissions.by_id(connection, SubmissionId(facts.submission_id))
        if submission is not None and submission.request is not None:
            access = access_of(connection, element_job_of(facts.parameters), job, epoch, row.site)
    if access is None:
        raise Forbidden(f"job {job} has no files in storage: it works for no request")
    return access


@router.call(READ_PROGRAM, responses=binary_response("application/zip"))
def program() -> Response:
    """The pilot's program. It contains no secret."""
    return Response(pilot_program(), media_type="application/zip")
