"""Routes that explain why a job, or the jobs of a queue, wait."""

from __future__ import annotations

import asyncio

from pilotage.core.errors import NotFound
from pilotage.core.ids import QueueId
from pilotage.core.jobs.states import JobState
from pilotage.server.context import Context
from pilotage.server.duties.wait_reasons import snapshot
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.tokens import Caller
from pilotage.services.pilots.payload_uses import use_of
from pilotage.services.why import answer as services
from pilotage.services.why import blockers
from pilotage.store.tables import listing, submissions, wait_reasons
from pilotage.store.tables.selections import JobSelection
from pilotage.wire.jobs import JobSummary
from pilotage.wire.limits import Id
from pilotage.wire.why import WHY_JOB, WHY_QUEUE, Blocker, Why

router = CallRouter("why")


@router.call(WHY_JOB)
async def why_job(job: Id, context: TheContext, caller: TheCaller) -> Why:
    """The reason why a job waits, the jobs before it, and the changes that would help."""
    job_or_answer = await asyncio.to_thread(_find_job, context, caller, job)
    if isinstance(job_or_answer, Why):
        return job_or_answer
    if job_or_answer.state != JobState.BLOCKED:
        return await _why(context, job_or_answer)
    rows, root = await asyncio.to_thread(_find_blockers, context, job_or_answer)
    return blockers.explain(job_or_answer, rows, None if root is None else await _why(context, root))


async def _why(context: Context, job: JobSummary) -> Why:
    now = context.clock()
    job.use = use_of(context.pool, job.id, job.epoch, job.state, job.pilot)
    queue_snapshot = await snapshot(context, now) if job.state == JobState.WAITING else None
    return await asyncio.to_thread(
        lambda: services.why_job(queue_snapshot, context.readers.connection(), job, now)
    )


def _find_blockers(context: Context, job: JobSummary) -> tuple[list[Blocker], JobSummary | None]:
    connection = context.readers.connection()
    return blockers.blockers(connection, job), blockers.root_blocker(connection, job)


@router.call(WHY_QUEUE)
async def why_queue(queue: Id, context: TheContext, caller: TheCaller) -> Why:
    """The reason why the jobs of a queue wait, and the earlier reasons."""
    await asyncio.to_thread(_check_queue, context, caller, queue)
    now = context.clock()
    queue_snapshot = await snapshot(context, now)
    return await asyncio.to_thread(
        lambda: services.why_queue(queue_snapshot, context.readers.connection(), QueueId(queue), now)
    )


def _find_job(context: Context, caller: Caller, job: int) -> JobSummary | Why:
    """A job that the caller may see, or the answer for a job that is not created yet. Others' jobs do not exist."""
    connection, viewer = context.readers.connection(), caller.viewer()
    rows = listing.jobs(connection, JobSelection(ids=[job]), viewer, 0, 1)
    if rows:
        return JobSummary(*rows[0])
    future_job = wait_reasons.find_unmade_job(connection, job)
    if future_job is not None and viewer.may_see(future_job.owner, future_job.group):
        return services.being_created(job, future_job.submission)
    raise NotFound(f"there is no job {job}", hint="or it is not yours")


def _check_queue(context: Context, caller: Caller, queue: int) -> None:
    """Raise NotFound for a queue that does not exist or belongs to others; the two cannot be told apart."""
    identity = submissions.queue_identity(context.readers.connection(), QueueId(queue))
    if identity is None or not caller.viewer().may_see(identity.owner, identity.group):
        raise NotFound(f"there is no queue {queue}", hint="or it is not yours; `pilotage queue list`")
