"""Routes that match jobs with computing elements, and show the ads of both sides."""

from __future__ import annotations

import asyncio
import json

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.ids import QueueId
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.policy.lookup import ce_by_name
from pilotage.core.queues.identity import QueueIdentity
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.routes.submissions import group_of
from pilotage.server.tokens import Caller
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.list_match import ce_ad_report, list_match, requester_text
from pilotage.services.submission.accept import check_places, identity_of
from pilotage.store.tables import ce_information, listing, submissions
from pilotage.store.tables.selections import JobSelection
from pilotage.wire.ces import CeQuery
from pilotage.wire.jobs import JobSummary
from pilotage.wire.limits import Id
from pilotage.wire.matchmaking import (
    MATCH_CES,
    SHOW_CE_AD,
    SHOW_JOB_AD,
    CeAdReport,
    MatchReport,
    MatchRequest,
    RequesterAd,
)

router = CallRouter("matchmaking")


@router.call(MATCH_CES)
async def match_ces(body: MatchRequest, context: TheContext, caller: TheCaller) -> MatchReport:
    """Match a job, or a description, with every CE. Nothing is submitted and nothing is stored."""
    return await asyncio.to_thread(_match, context, caller, body)


def _match(context: Context, caller: Caller, body: MatchRequest) -> MatchReport:
    policy, now = context.pool.policy, context.clock()
    if body.ce:
        ce_by_name(policy, body.ce)
    if (body.job is None) == (body.description is None):
        raise InvalidInput("exactly one of job and description must be set")
    state = ""
    if body.job is None:
        identity = _described(context, caller, body)
    elif body.owner or body.group:
        raise InvalidInput("a job has its owner and group: leave both out", field="owner")
    else:
        job = _job(context, caller, body.job)
        identity, state = _queue_of(context, job), job.state
    rows = summaries(policy, context.readers.connection(), now)
    report = list_match(context.pool, identity, rows, now, ce=body.ce, limit=body.limit)
    report.job_state = state
    return report


def _described(context: Context, caller: Caller, body: MatchRequest) -> QueueIdentity:
    """The identity that a job of this description would have."""
    policy = context.pool.policy
    description = parse_yaml_mapping(body.description or {}).description
    check_places(description, policy)
    owner = body.owner or caller.user
    if owner == caller.user:
        return identity_of(description, owner, group_of(policy, caller, body.group), policy)
    known = policy.users.get(owner)
    group = body.group or (known.groups[0] if known and known.groups else "")
    if known is None or group not in known.groups or not caller.viewer().may_see(owner, group):
        raise NotFound(f"there is no user {owner} in this group", hint="or their jobs are not yours to see")
    return identity_of(description, owner, group, policy)


@router.call(SHOW_CE_AD)
def ce_ad(asked: CeQuery, context: TheContext, caller: TheCaller) -> CeAdReport:
    """The ad of a CE as it is matched, its age, and the classes of its hosts."""
    ce_by_name(context.pool.policy, asked.name)
    report = ce_ad_report(context.pool, asked.name, context.clock())
    report.problem = ce_information.problems(context.readers.connection(), [asked.name]).get(asked.name, "")
    return report


@router.call(SHOW_JOB_AD)
def job_ad(job: Id, context: TheContext, caller: TheCaller) -> RequesterAd:
    """The requester's ad of a job: its Requirements, and the identity with which pilots are submitted for it."""
    row = _job(context, caller, job)
    identity = _queue_of(context, row)
    return RequesterAd(
        row.id, row.queue, identity.owner, identity.group, requester_text(identity, context.pool.policy)
    )


def _job(context: Context, caller: Caller, job: int) -> JobSummary:
    """A job that the caller may see. Others' jobs do not exist."""
    rows = listing.jobs(context.readers.connection(), JobSelection(ids=[job]), caller.viewer(), 0, 1)
    if not rows:
        raise NotFound(f"there is no job {job}", hint="or it is not yours, or not created yet")
    return JobSummary(*rows[0])


def _queue_of(context: Context, job: JobSummary) -> QueueIdentity:
    """The queue of a job. If it is gone, since its last unfinished job ended long ago, that of a new job like it."""
    connection = context.readers.connection()
    identity = submissions.queue_identity(connection, QueueId(job.queue))
    if identity is not None:
        return identity
    facts = listing.job_facts(connection, job.id)
    if facts is None:
        raise NotFound(f"the description of job {job.id} is gone")
    description = description_from_json(json.loads(facts.description))
    return identity_of(description, job.owner, job.group, context.pool.policy)
