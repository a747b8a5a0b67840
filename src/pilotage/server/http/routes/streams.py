"""Routes for submissions whose rows of parameters are sent in chunks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import Request

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.ids import SubmissionId
from pilotage.core.jobs.description import Scalar
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parametric import check_rows
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.jobs.per_job_inputs import per_job_columns
from pilotage.core.plurals import plural
from pilotage.core.queues.offer_history import KnownOffer
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.routes.submissions import SubmissionInput, check_prepared, prepare_submission
from pilotage.server.tokens import Caller
from pilotage.services.submission.accept import PreparedSubmission, check_per_job_files, response
from pilotage.services.submission.chunked import (
    accept_chunk,
    check_description,
    close,
    open_submission,
    owned_submission,
)
from pilotage.services.submission.job_creation import ChunkRows, JobCreator, encoded, files_named
from pilotage.services.submission.quota import jobs_of
from pilotage.store.tables import chunks as chunk_rows
from pilotage.store.tables import submissions as rows
from pilotage.store.writer.transaction import LockingRequest
from pilotage.wire.limits import Id, Int32
from pilotage.wire.submissions import (
    CHECK_OPEN,
    CLOSE_SUBMISSION,
    LIST_CHUNKS,
    MAX_CHUNK_BYTES,
    MAX_CHUNK_ROWS,
    OPEN_SUBMISSION,
    PUT_CHUNK,
    SHOW_SUBMISSION,
    ChunkResponse,
    ChunksPage,
    ChunksQuery,
    ChunkSummary,
    CloseRequest,
    OpenRequest,
    OpenSubmission,
    SubmissionCheck,
    SubmitResponse,
    max_rows_per_chunk,
)

router = CallRouter("submission")

_decoder = msgspec.json.Decoder(list[list[Scalar]])
_ROW_IN_ERROR = re.compile(r"`\$\[(\d+|\.\.\.)\]")


@router.call(OPEN_SUBMISSION)
async def open_(body: OpenRequest, context: TheContext, caller: TheCaller) -> OpenSubmission:
    """Begin a submission whose rows are sent in chunks, or find it by its key to continue it."""
    context.disk.space.check()
    known_offers = await context.work.prospects.known()
    prepared = await asyncio.to_thread(_prepare, context, caller, body, known_offers)
    pool, clock = context.pool, context.clock
    submission = await context.writer.acall(lambda tx: open_submission(pool, tx, prepared, clock()))
    return await asyncio.to_thread(_state, context, submission)


@router.call(CHECK_OPEN)
async def check(body: OpenRequest, context: TheContext, caller: TheCaller) -> SubmissionCheck:
    """The errors and warnings of a submission before its rows are sent; nothing is stored."""
    known_offers = await context.work.prospects.known()
    prepared = await asyncio.to_thread(_prepare, context, caller, body, known_offers, trial=True)
    return await check_prepared(context, prepared)


def _prepare(
    context: Context,
    caller: Caller,
    body: OpenRequest,
    known_offers: Sequence[KnownOffer],
    *,
    trial: bool = False,
) -> PreparedSubmission:
    if not body.key:
        raise InvalidInput("rows in chunks need a key, to go on after an interruption", field="key")
    if not body.names or len(set(body.names)) != len(body.names):
        raise InvalidInput("names must name the values of a row, each once", field="names")
    submission = parse_yaml_mapping(body.description, names=body.names)
    check_description(submission.description, body.names, body.expected)
    given = SubmissionInput(submission, body.group, body.key, body.inputs, body.expected)
    return prepare_submission(context, caller, given, known_offers, trial=trial)


def _state(context: Context, submission: rows.SubmissionRow) -> OpenSubmission:
    last = chunk_rows.last(context.readers.connection(), submission.id)
    return OpenSubmission(
        submission.id,
        submission.queue,
        submission.state == rows.OPEN,
        list(submission.names),
        0 if last is None else last.number + 1,
        submission.count,
        submission.expected,
        list(submission.warnings),
    )


def _own_submission(context: Context, caller: Caller, submission_id: int) -> rows.SubmissionRow:
    submission = rows.by_id(context.readers.connection(), SubmissionId(submission_id))
    return owned_submission(submission, submission_id, caller.user)


@router.call(SHOW_SUBMISSION)
def state(submission_id: Id, context: TheContext, caller: TheCaller) -> OpenSubmission:
    """The state of a submission in chunks."""
    return _state(context, _own_submission(context, caller, submission_id))


@router.call(LIST_CHUNKS)
def chunks(submission_id: Id, asked: ChunksQuery, context: TheContext, caller: TheCaller) -> ChunksPage:
    """The accepted chunks, ordered by number."""
    submission = _own_submission(context, caller, submission_id)
    page = chunk_rows.page(context.readers.connection(), submission.id, asked.after + 1, asked.limit)
    return ChunksPage(
        [ChunkSummary(chunk.number, chunk.count, chunk.digest) for chunk in page],
        page[-1].number if len(page) == asked.limit else None,
    )


@router.call(PUT_CHUNK)
async def chunk(
    submission_id: Id, number: Int32, request: Request, context: TheContext, caller: TheCaller
) -> ChunkResponse:
    """Accept rows. The answer is sent when their jobs wait in the task queue."""
    context.disk.space.check()
    size = int(request.headers.get("content-length", 0))
    if size > MAX_CHUNK_BYTES:
        raise TooLarge(
            f"the chunk has {size:,} bytes: at most {MAX_CHUNK_BYTES:,} are accepted",
            hint="send fewer rows at a time",
        )
    pool, clock, bulk = context.pool, context.clock, context.work.gate
    with bulk.place():
        body = await request.body()
        given = await asyncio.to_thread(_read_rows, context, caller, submission_id, number, body)
        response = await bulk.write(
            LockingRequest(
                jobs_of(caller.user),
                lambda tx: accept_chunk(
                    pool, tx, caller.user, submission_id, number, given, clock(), bulk.pace
                ),
            )
        )
        if response.made < response.count:
            await bulk.make(pool, JobCreator(response.submission, number, rows=given))
    context.wake.local_ces.set()
    return ChunkResponse(number, response.first_job, response.count)


def _read_rows(context: Context, caller: Caller, submission_id: int, number: int, body: bytes) -> ChunkRows:
    """Read and check the rows of a body."""
    submission = _own_submission(context, caller, submission_id)
    try:
        given = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        match = _ROW_IN_ERROR.search(str(error))
        place = f"row {match[1]} of chunk {number}" if match and match[1].isdigit() else f"chunk {number}"
        raise InvalidInput(
            f"{place}: {error}",
            hint="a chunk is a list of rows, a row a list of texts, numbers, truth values",
        ) from None
    _check_rows(submission, number, given, b"\\u0000" in body)
    description = description_from_json(msgspec.json.decode(submission.description))
    check_rows(
        description, submission.names, given, submission.count, submission.expected or submission.count
    )
    own = tuple(per_job_columns(description, submission.names).values())
    most = max_rows_per_chunk(len(own))
    if len(given) > most:
        raise TooLarge(
            f"chunk {number} has {len(given):,} rows with input files: at most {most:,} are accepted",
            hint="send fewer rows at a time",
        )
    common = sum(item["size"] for item in msgspec.json.decode(submission.inputs))
    sizes_of = partial(rows.upload_sizes, context.readers.connection(), caller.user)
    check_per_job_files(description, submission.names, given, common, sizes_of, context.pool.policy)
    return ChunkRows(tuple(encoded(given)), len(given), files_named(given, own))


def _check_rows(submission: rows.SubmissionRow, number: int, given: list[list[Any]], escaped: bool) -> None:
    if not given:
        raise InvalidInput(f"chunk {number} has no rows")
    if len(given) > MAX_CHUNK_ROWS:
        raise TooLarge(
            f"chunk {number} has {len(given):,} rows: at most {MAX_CHUNK_ROWS:,} are accepted",
            hint="send fewer rows at a time",
        )
    width = len(submission.names)
    for place, row in enumerate(given):
        if len(row) != width:
            raise InvalidInput(
                f"row {place} of chunk {number} has {plural(len(row), 'value')} for {plural(width, 'name')}"
            )
        if escaped and any(isinstance(value, str) and "\0" in value for value in row):
            raise InvalidInput(f"row {place} of chunk {number}: a value contains a NUL character")


@router.call(CLOSE_SUBMISSION)
async def close_(
    submission_id: Id, body: CloseRequest, context: TheContext, caller: TheCaller
) -> SubmitResponse:
    """End the submission after its last row. The answer is sent when all jobs wait in the task queue."""
    clock, bulk = context.clock, context.work.gate
    submission, last = await context.writer.acall(
        lambda tx: close(tx, caller.user, submission_id, body.count, clock())
    )
    await bulk.make(context.pool, JobCreator(submission.id))
    return response(submission, last)
