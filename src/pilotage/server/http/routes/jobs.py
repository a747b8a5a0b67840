"""Routes to list and show jobs, read their output, and act on them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import fields, replace
from functools import partial

from fastapi import Response
from fastapi.responses import StreamingResponse

from pilotage.core.errors import NotFound, Overloaded
from pilotage.core.ids import JobId
from pilotage.core.jobs.json_format import description_to_json, hide_environment_values
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.edge import binary_response
from pilotage.server.http.output_archive import OutputArchive
from pilotage.server.http.pages import page
from pilotage.server.http.stored_file_responses import output_response
from pilotage.server.http.stored_outputs import (
    STREAMS,
    inline_streams,
    listed_outputs,
    stored_files,
    stream_names,
)
from pilotage.server.sandbox_objects import delete_outputs_or_leave, pieces_of, read_object
from pilotage.server.tokens import Caller
from pilotage.services.jobs.actions import CHUNK, ActionOutcome, check_verb
from pilotage.services.jobs.audited_actions import act_audited
from pilotage.services.jobs.dependants import count_needing
from pilotage.services.jobs.payload import parameter_values, stored_description
from pilotage.services.pilots import leases
from pilotage.services.pilots.payload_uses import use_of
from pilotage.store.engine.rows import from_row
from pilotage.store.tables import attempts, events, listing
from pilotage.store.tables.listing import JobFacts, JobSummaryRow
from pilotage.store.tables.selections import JobSelection
from pilotage.wire import limits
from pilotage.wire.jobs import (
    ACT_ON_JOBS,
    COUNT_JOBS,
    LIST_EVENTS,
    LIST_JOBS,
    LIST_OUTPUTS,
    READ_LOG,
    READ_OUTPUT,
    SHOW_JOB,
    ActionRequest,
    ActionResponse,
    Attempt,
    Counts,
    JobDetail,
    JobEvent,
    JobsQuery,
    JobSummary,
    ListedJobs,
    LogQuery,
    OutputFile,
    Refusal,
    RefusedOutputFile,
    Selection,
)
from pilotage.wire.outputs import READ_OUTPUTS, ArchiveRequest

router = CallRouter("jobs")

FOLLOW_SECONDS = 30.0
"""Seconds for which a pilot streams the output of a job after a request for it."""
MAX_LOG_BYTES = 1_000_000
REFUSALS_SHOWN = 100
_attempt_of = from_row(Attempt)


def selection_of(conditions: Selection) -> JobSelection:
    """The conditions of a query or a body. Their types refuse one that is present but empty."""
    known = ListedJobs if isinstance(conditions, ListedJobs) else Selection
    return JobSelection(**{field.name: getattr(conditions, field.name) for field in fields(known)})


@router.call(LIST_JOBS)
def jobs(asked: JobsQuery, context: TheContext, caller: TheCaller) -> Response:
    """Jobs by rising id above `after`, with `newest` by falling id below it; a page may have fewer than `limit`."""
    connection = context.readers.connection()
    rows = listing.job_rows(
        connection, selection_of(asked), caller.viewer(), asked.after, asked.limit, newest=asked.newest
    )
    return page("jobs", ((row.id, _summary(context, row)) for row in rows), asked.limit)


def _summary(context: Context, row: JobSummaryRow) -> JobSummary:
    return JobSummary(*row, use_of(context.pool, row.id, row.epoch, row.state, row.pilot))


@router.call(COUNT_JOBS)
def counts(selection: ListedJobs, context: TheContext, caller: TheCaller) -> Counts:
    """The number of jobs of the selection in each state."""
    states = listing.counts(context.readers.connection(), selection_of(selection), caller.viewer())
    return Counts(states, sum(states.values()), listing.final(states))


@router.call(SHOW_JOB)
def job(job: limits.Id, context: TheContext, caller: TheCaller) -> JobDetail:
    """One job: its description, attempts and outputs."""
    connection = context.readers.connection()
    summary, facts = _visible_job(context, caller, job)
    tries = list(map(_attempt_of, listing.attempts(connection, job)))
    result = attempts.result_of(connection, JobId(job), facts.finished_epoch)
    refused = result.refused if result else []
    stored = replace(stored_description(facts, job), user_priority=summary.user_priority)
    description = description_to_json(stored)
    return JobDetail(
        job=summary,
        description=description if summary.owner == caller.user else hide_environment_values(description),
        attempts=tries,
        outputs=listed_outputs(context.disk.sandbox, facts, job, result),
        missing_outputs=result.missing if result else [],
        refused_outputs=[RefusedOutputFile(name, reason) for name, reason in refused],
        parameters=parameter_values(facts),
    )


@router.call(LIST_EVENTS)
def job_events(job: limits.Id, context: TheContext, caller: TheCaller) -> list[JobEvent]:
    """The events of a job, oldest first."""
    _, facts = _visible_job(context, caller, job)
    history = events.history(context.readers.connection(), JobId(job), facts.last_event)
    return [JobEvent(e.at, e.kind, e.old, e.new, e.epoch, e.actor, e.detail) for e in history]


@router.call(LIST_OUTPUTS)
def outputs(job: limits.Id, context: TheContext, caller: TheCaller) -> list[OutputFile]:
    """Names and sizes of the outputs of a job. A killed job has only the received standard output and error."""
    _, facts = _visible_job(context, caller, job)
    result = attempts.result_of(context.readers.connection(), JobId(job), facts.finished_epoch)
    return listed_outputs(context.disk.sandbox, facts, job, result)


@router.call(READ_OUTPUT)
def output(job: limits.Id, name: limits.FileName, context: TheContext, caller: TheCaller) -> Response:
    """The bytes of one output."""
    _, facts = _visible_job(context, caller, job)
    return output_response(context, facts, job, name)


@router.call(READ_OUTPUTS, responses=binary_response("application/x-tar"))
def outputs_of_many(body: ArchiveRequest, context: TheContext, caller: TheCaller) -> StreamingResponse:
    """The outputs of all jobs of a selection that the caller may see, as one tar stream."""
    archive = OutputArchive(
        context.readers,
        context.disk.sandbox,
        caller.viewer(),
        selection_of(body.selection),
        partial(pieces_of, context),
        body.after,
        body.names_only,
    )
    return StreamingResponse(archive.chunks(), media_type="application/x-tar")


def _request_streaming(context: Context, job: JobId) -> None:
    """Ask the pilot of a job to stream its output. The pilot may be connected to any server of the pool."""
    pool, until = context.pool, context.clock() + FOLLOW_SECONDS
    if until - pool.jobs.followed.get(job, 0.0) > FOLLOW_SECONDS / 2:
        # When the writer is too busy, the next call for the output asks again.
        with contextlib.suppress(Overloaded):
            context.writer.submit(
                lambda tx: leases.watch_output(pool, tx, job, until), lambda result, error: None
            )


@router.call(READ_LOG)
def logs(
    job: limits.Id, stream: limits.Name, asked: LogQuery, context: TheContext, caller: TheCaller
) -> Response:
    """Standard output or error from `offset`. For a running job this is the part that its pilot has sent so far.

    `attempt`: of this attempt, as far as its pilot has sent it; 0: of the last one.
    """
    if stream not in STREAMS:
        raise NotFound(f"there is no stream {stream}", hint="stdout or stderr")
    summary, facts = _visible_job(context, caller, job)
    offset, attempt = asked.offset, asked.attempt
    if len(set(stream_names(facts, job))) == 1:
        stream = "stdout"  # both go to one file, which the pilot streams under this name
    epoch = _epoch_of(context, job, attempt) if attempt else facts.epoch
    if epoch != facts.epoch:
        data = _past_stream(context, facts, job, epoch, stream, offset)
    elif facts.pilot_id is not None:
        _request_streaming(context, JobId(job))
        data = context.disk.sandbox.read_tail(job, facts.epoch, stream, offset, MAX_LOG_BYTES)
    else:
        data = _stored_stream(context, facts, job, stream, offset)
    headers = {"X-Pilotage-State": summary.state, "X-Pilotage-Offset": str(offset)}
    return Response(data, headers=headers, media_type="application/octet-stream")


@router.call(ACT_ON_JOBS)
async def action(
    verb: limits.Name, body: ActionRequest, context: TheContext, caller: TheCaller
) -> ActionResponse:
    """Kill, reschedule, redo, delete, hold, release or reprioritise the jobs of a selection that the caller may see.

    `reschedule` takes failed and killed jobs, `redo` Done ones too.
    The verb `priority` gives them the UserPriority of the body. Jobs that have not ended have it when they next wait.
    """
    check_verb(verb, body.priority)
    selection = selection_of(body.selection)
    answer, after, killed = ActionResponse(0, 0), 0, list[int]()
    while True:
        ids = await asyncio.to_thread(_ids, context, selection, caller, after)
        if not ids:
            break
        outcome: ActionOutcome = await context.writer.acall(
            partial(
                act_audited,
                context.pool,
                verb=verb,
                ids=ids,
                called=audited_call(context, caller, ACT_ON_JOBS, verb, body.reason),
                dry_run=body.dry_run,
                priority=body.priority,
            )
        )
        answer.matched += len(ids)
        answer.done += len(outcome.done)
        room = REFUSALS_SHOWN - len(answer.refused)
        answer.refused += [Refusal(id_, why) for id_, why in outcome.refused[: max(0, room)]]
        if verb == "delete" and not body.dry_run:
            await asyncio.to_thread(_delete_files, context, outcome.done)
        if body.dry_run and verb == "kill":
            killed += outcome.done
        after = ids[-1]
    if killed:
        answer.skipped = await asyncio.to_thread(lambda: count_needing(context.readers.connection(), killed))
    context.wake.local_ces.set()
    return answer


def _ids(context: Context, selection: JobSelection, caller: Caller, after: int) -> list[int]:
    return listing.job_ids(context.readers.connection(), selection, caller.viewer(), after, CHUNK)


def _delete_files(context: Context, jobs: list[int]) -> None:
    for id_ in jobs:
        delete_outputs_or_leave(context, id_)
        context.disk.sandbox.delete_tails(id_)


def _visible_job(context: Context, caller: Caller, job: int) -> tuple[JobSummary, JobFacts]:
    """A job that the caller may see. Raises NotFound for others' jobs too, as if they did not exist."""
    connection = context.readers.connection()
    rows = listing.jobs(connection, JobSelection(ids=[job]), caller.viewer(), 0, 1)
    facts = listing.job_facts(connection, job) if rows else None
    if not rows or facts is None:
        raise NotFound(f"there is no job {job}", hint="or it is not yours")
    return _summary(context, rows[0]), facts


def _stored_stream(context: Context, facts: JobFacts, job: int, stream: str, offset: int) -> bytes:
    """A piece of the standard output or error of a job without a pilot."""
    result = attempts.result_of(context.readers.connection(), JobId(job), facts.finished_epoch)
    name = stream_names(facts, job)[STREAMS.index(stream)]
    inline = inline_streams(facts, job, result).get(name)
    if inline is not None:
        return inline[offset : offset + MAX_LOG_BYTES]
    if name in stored_files(context.disk.sandbox, facts, job, result):
        return _piece(context, job, facts.finished_epoch, name, offset)
    return context.disk.sandbox.read_tail(job, facts.epoch, stream, offset, MAX_LOG_BYTES)


def _piece(context: Context, job: int, epoch: int, name: str, offset: int) -> bytes:
    """A piece of a stored output. Raises NotFound."""
    stored = context.disk.sandbox.open_output(job, epoch, name)
    if isinstance(stored, ObjectRecord):
        return read_object(context, stored, offset, MAX_LOG_BYTES)
    return context.disk.sandbox.read_piece(stored, offset, MAX_LOG_BYTES)


def _epoch_of(context: Context, job: int, attempt: int) -> int:
    """The epoch of an attempt. Raises NotFound."""
    tries = listing.attempts(context.readers.connection(), job)
    epoch = next((row.epoch for row in reversed(tries) if row.attempt == attempt), None)
    if epoch is None:
        raise NotFound(f"job {job} has no attempt {attempt}", hint=f"pilotage status {job} lists them")
    return epoch


def _past_stream(context: Context, facts: JobFacts, job: int, epoch: int, stream: str, offset: int) -> bytes:
    """A piece of the output of an earlier attempt: of its result, or else of the output that its pilot has sent."""
    sandbox, place = context.disk.sandbox, STREAMS.index(stream)
    result = attempts.result_of(context.readers.connection(), JobId(job), epoch)
    inline = (result.stdout, result.stderr)[place] if result is not None else None
    if inline is not None:
        return inline[offset : offset + MAX_LOG_BYTES]
    with contextlib.suppress(NotFound):
        return _piece(context, job, epoch, stream_names(facts, job)[place], offset)
    return sandbox.read_tail(job, epoch, stream, offset, MAX_LOG_BYTES)
