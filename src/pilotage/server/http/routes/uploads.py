"""Routes to upload input files before the submission that names them: many small ones at once, or single files.

Single files go to the server, or to an S3 service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from fastapi import Request, Response

from pilotage.core.errors import InvalidInput, Overloaded, TooLarge
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.input_objects import begin_upload, complete_upload, stored_inputs
from pilotage.server.tokens import Caller
from pilotage.services.jobs.sandbox_objects import input_place
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.retention import file_of
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.limits import Digest
from pilotage.wire.uploads import (
    FIND_MISSING,
    FIND_UPLOAD,
    GIVE_UPLOAD_ADDRESS,
    MAX_BUNDLE_BYTES,
    MAX_BUNDLE_FILES,
    RECORD_UPLOAD,
    UPLOAD,
    UPLOAD_MANY,
    MissingUploads,
    SentInput,
    SignedUpload,
    UploadedBytes,
    UploadsRequest,
    split_bundle,
)

router = CallRouter("submission")


@router.call(FIND_MISSING)
def missing(body: UploadsRequest, context: TheContext, caller: TheCaller) -> MissingUploads:
    """The files of a list that this owner has not uploaded before. S3 services are asked for their files."""
    sizes = rows.upload_sizes(context.readers.connection(), caller.user, body.digests)
    stored = stored_inputs(context, caller.user, sizes)
    lacking = [digest for digest in dict.fromkeys(body.digests) if digest not in stored]
    return MissingUploads(lacking, input_place(context.pool) is not None)


@router.call(UPLOAD_MANY)
async def upload_many(request: Request, context: TheContext, caller: TheCaller) -> Response:
    """Store many small input files. Each is sent as its SHA-256, a space, its size, a line feed, and its bytes."""
    context.disk.space.check()
    body = await request.body()
    if len(body) > MAX_BUNDLE_BYTES:
        raise TooLarge(
            f"the files have {len(body):,} bytes: at most {MAX_BUNDLE_BYTES:,} are accepted together"
        )
    files = _read_bundle(body, context.pool.policy.jobs.max_input_file)
    await asyncio.to_thread(context.disk.sandbox.put_inputs, files)
    await _record(context, caller, [(digest, len(data)) for digest, data in files])
    return Response(msgspec.json.encode({"files": len(files)}), 201, media_type="application/json")


def _read_bundle(body: bytes, limit: int) -> list[tuple[str, bytes]]:
    try:
        files = split_bundle(body)
    except ValueError as error:
        raise InvalidInput(f"the body is not a sequence of files: {error}") from None
    if len(files) > MAX_BUNDLE_FILES:
        raise TooLarge(f"{len(files):,} files: at most {MAX_BUNDLE_FILES:,} are accepted together")
    for digest, data in files:
        if len(data) > limit:
            raise TooLarge(
                f"the file {digest} has more than {limit} bytes", hint="jobs.max_input_file in the policy"
            )
    return files


@router.call(
    FIND_UPLOAD,
    responses={404: {"description": "this owner has not uploaded the file"}},
)
def known(digest: Digest, context: TheContext, caller: TheCaller) -> Response:
    """204 if this owner has uploaded the file before."""
    size = rows.upload_size(context.readers.connection(), caller.user, digest)
    stored = size is not None and stored_inputs(context, caller.user, [digest])
    return Response(status_code=204 if stored else 404)


@router.call(UPLOAD)
async def upload(digest: Digest, request: Request, context: TheContext, caller: TheCaller) -> Response:
    """Store one input file under its SHA-256."""
    context.disk.space.check()
    limit = context.pool.policy.jobs.max_input_file
    size = await context.disk.sandbox.put_input(digest, request.stream(), limit)
    await _record(context, caller, [(digest, size)])
    body = msgspec.json.encode({"digest": digest, "size": size})
    return Response(body, 201, media_type="application/json")


@router.call(GIVE_UPLOAD_ADDRESS)
def give_address(digest: Digest, body: UploadedBytes, context: TheContext, caller: TheCaller) -> SignedUpload:
    """An address of an S3 service that takes just this file, for a while. So ask for it just before it is used."""
    context.disk.space.check()
    return begin_upload(context, caller.user, digest, body)


@router.call(RECORD_UPLOAD)
async def record_upload(digest: Digest, body: SentInput, context: TheContext, caller: TheCaller) -> Response:
    """Note that an input file is complete in an S3 service, which is asked first. It may be sent again."""
    await asyncio.to_thread(complete_upload, context, caller.user, digest, body)
    await _record(context, caller, [(digest, body.size)])
    return Response(status_code=201)


async def _record(context: Context, caller: Caller, files: Sequence[tuple[str, int]]) -> None:
    now, sandbox = context.clock(), context.disk.sandbox

    def note(tx: Transaction) -> None:
        for digest, _ in sorted(files):
            tx.lock(file_of(digest))
        for digest, size in files:
            rows.insert_upload(tx.connection, caller.user, digest, size, now)
            # Retention may have removed an earlier upload of the same bytes, with its file, before this lock.
            in_storage = sandbox.input_objects.find(caller.user, digest)
            if in_storage is None and not sandbox.input_path(digest).exists():
                raise Overloaded(
                    "the file was removed while it was stored", hint="send it again", retry_after=1.0
                )

    await context.writer.acall(note)
