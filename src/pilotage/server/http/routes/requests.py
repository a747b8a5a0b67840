"""Routes for requests: submit, list, show, and the verbs that change one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from pilotage.core.errors import Forbidden, InvalidInput
from pilotage.core.policy import Policy
from pilotage.core.requests.parser import parse_mapping
from pilotage.core.requests.plan import plan_steps
from pilotage.core.requests.step_changes import StepChanges
from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.requests import changes, copies, progress, submission
from pilotage.services.requests.changes import Change, SiteLists
from pilotage.services.requests.rights import Actor, seen_request
from pilotage.services.requests.submission import PreparedRequest
from pilotage.store.tables import requests as rows
from pilotage.store.tables import submissions
from pilotage.store.tables.requests import RequestFilter, RequestRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire import limits
from pilotage.wire.limits import MAX_PAGE
from pilotage.wire.requests import (
    ElementsPage,
    RequestAccepted,
    RequestAssignment,
    RequestChange,
    RequestCheck,
    RequestClone,
    RequestDetail,
    RequestEvent,
    RequestHistory,
    RequestPriority,
    RequestResubmission,
    RequestSites,
    RequestsPage,
    RequestSubmission,
    RequestSummary,
    ResubmissionAccepted,
    ResubmissionCount,
    StepChange,
)

router = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=CheckedRoute)

_LAST = limits.MAX_INT64

RequestId = limits.Id


def _actor(caller: Caller) -> Actor:
    return Actor(caller.user, caller.group, caller.properties)


@router.post("")
async def submit_request(
    body: RequestSubmission, context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> RequestAccepted:
    """Accept a request. With a right to assign and a team, the work queue takes it at once."""
    context.disk.space.check()
    prepared = await asyncio.to_thread(_prepare, context, caller, body)
    pool, now = context.pool, context.clock()
    row = await context.writer.acall(lambda tx: submission.submit(pool.policy, tx, prepared, now))
    return RequestAccepted(progress.summary_of(row), prepared.jobs, list(prepared.warnings))


@router.post("/check")
def check_request(
    body: RequestSubmission, context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> RequestCheck:
    """The errors and warnings of a request, and its size; nothing is stored. Its files need not be uploaded."""
    prepared = _prepare(context, caller, replace_confirmed(body), trial=True)
    steps = [step.name for step in plan_steps(prepared.specification, 0)]
    inputs, request = prepared.inputs, prepared.specification
    return RequestCheck(
        jobs=prepared.jobs,
        group=request.group,
        steps=steps,
        input_datasets=len(request.input_datasets),
        input_files=inputs.files,
        input_events=inputs.events,
        input_size=inputs.size,
        core_seconds=prepared.effort.core_seconds,
        output_size=prepared.effort.output_size,
        warnings=list(prepared.warnings),
    )


def replace_confirmed(body: RequestSubmission) -> RequestSubmission:
    """A check tells the number of jobs; it needs no confirmation."""
    return replace(body, confirmed=True)


def _prepare(
    context: Context, caller: Caller, body: RequestSubmission, *, trial: bool = False
) -> PreparedRequest:
    """Read and check a request; nothing is stored."""
    policy, connection = context.pool.policy, context.readers.connection()
    specification = parse_mapping(body.specification)
    specification = replace(specification, group=_group(policy, caller, specification.group))
    submission.check_sites(specification, policy)
    announced = {file.digest: file.size for files in body.inputs.values() for file in files} if trial else {}

    def size_of(digest: str) -> int | None:
        size = submissions.upload_size(connection, caller.user, digest)
        return announced.get(digest) if size is None else size

    specification = submission.with_uploads(specification, body.inputs, size_of, policy)
    prepared = PreparedRequest(specification, _actor(caller), body.key, body.origin)
    if body.origin is not None:
        seen_request(connection, prepared.actor, body.origin)
    return submission.check_data(
        connection, prepared, context.pool, strict=body.strict, confirmed=body.confirmed
    )


def _group(policy: Policy, caller: Caller, wanted: str) -> str:
    """The group of the request. Raises Forbidden if the caller is not in it."""
    group = wanted or caller.group
    user = policy.users.get(caller.user)
    if user is None:
        raise Forbidden(f"the policy has no user {caller.user}", hint="add [users.NAME] and apply the policy")
    if group not in user.groups:
        raise Forbidden(f"{caller.user} is not in group {group}", hint="`pilotage whoami` shows your group")
    return group


@router.get("", response_model=RequestsPage)
def list_requests(
    states: Annotated[list[limits.GivenName] | None, Query(max_length=50)] = None,
    owner: limits.Name = "",
    team: limits.Name = "",
    campaign: limits.Name = "",
    name: limits.Name = "",
    before: limits.Cursor = _LAST,
    limit: int = Query(100, ge=1, le=MAX_PAGE),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Response:
    """Requests that the caller may see, newest first, with ids below `before`."""
    actor, connection = _actor(caller), context.readers.connection()
    wanted = RequestFilter(tuple(states or ()), owner, team, campaign, name)
    if not actor.sees_all:
        wanted = replace(wanted, visible_to=actor.user, visible_groups=actor.shared_groups)
    listed = rows.page(connection, wanted, before=before, most=limit)
    return page("requests", ((row.id, row) for row in progress.summaries(connection, listed)), limit)


@router.get("/{id_}")
def show_request(
    id_: RequestId, context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> RequestDetail:
    """The funnel of one request: elements and jobs by state, sites, and errors with an example of each."""
    connection = context.readers.connection()
    row = seen_request(connection, _actor(caller), id_)
    return progress.detail(connection, row, context.clock())


@router.get("/{id_}/history")
def request_history(
    id_: RequestId,
    after: limits.Cursor = 0,
    limit: int = Query(100, ge=1, le=MAX_PAGE),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> RequestHistory:
    """The events of a request, oldest first: moves between states, and changes with who made them."""
    connection = context.readers.connection()
    seen_request(connection, _actor(caller), id_)
    stored = rows.events_of(connection, id_, after=after, most=limit)
    events = [
        RequestEvent(event.id, event.at, event.actor, event.kind, event.old, event.new, event.detail)
        for event in stored
    ]
    return RequestHistory(events, stored[-1].id if len(stored) == limit else None)


@router.get("/{id_}/elements", response_model=ElementsPage)
def request_elements(
    id_: RequestId,
    states: Annotated[list[limits.GivenName] | None, Query(max_length=50)] = None,
    step: limits.Name = "",
    unchanged: limits.Seconds = 0.0,
    after: limits.Cursor = 0,
    limit: int = Query(100, ge=1, le=MAX_PAGE),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Response:
    """Elements of a request by rising id above `after`. `unchanged`: the least number of seconds in their state."""
    connection = context.readers.connection()
    row = seen_request(connection, _actor(caller), id_)
    listed = progress.elements(
        connection,
        row,
        states=states or (),
        step=step,
        unchanged_since=context.clock() - unchanged,
        after=after,
        most=limit,
    )
    return page("elements", ((element.id, element) for element in listed), limit)


Verb = Callable[[Transaction, Change], RequestRow]


async def _change(context: Context, caller: Caller, reason: str, verb: Verb) -> RequestSummary:
    change = Change(_actor(caller), context.clock(), reason)
    return progress.summary_of(await context.writer.acall(lambda tx: verb(tx, change)))


def _add_verb(path: str, verb: Callable[[Transaction, int, Change], RequestRow], effect: str) -> None:
    """The route of a verb that needs a reason only."""

    async def change_request(
        id_: RequestId,
        body: RequestChange,
        context: Context = Depends(context_of),
        caller: Caller = Depends(caller_of),
    ) -> RequestSummary:
        return await _change(context, caller, body.reason, lambda tx, change: verb(tx, id_, change))

    change_request.__name__, change_request.__doc__ = f"{verb.__name__}_request", effect
    router.post(f"/{{id_}}/{path}")(change_request)


_add_verb(
    "approve",
    changes.approve,
    "Approve a new request; one with a team is assigned too. Needs PRODUCTION_MANAGEMENT.",
)
_add_verb(
    "reject",
    changes.reject,
    "Refuse a request that is not assigned, or the result of an ended one. Needs PRODUCTION_MANAGEMENT.",
)
_add_verb("pause", changes.pause, "Give no more elements to agents and release no more jobs, until `resume`.")
_add_verb("resume", changes.resume, "End the pause of a request.")
_add_verb("abort", changes.abort, "End a request: its elements and jobs are cancelled.")
_add_verb(
    "force-complete",
    changes.force_complete,
    "End a request early: jobs that are done count, the others are cancelled.",
)
_add_verb("close-out", changes.close_out, "Accept the result of a completed request.")
_add_verb("announce", changes.announce, "Tell that the accepted result of a request is there.")
_add_verb("archive", changes.archive, "Walk an ended request to its archived state.")


@router.post("/{id_}/assign")
async def assign_request(
    id_: RequestId,
    body: RequestAssignment,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> RequestSummary:
    """Give a request a team, lists of sites, splittings and resources. Needs PRODUCTION_MANAGEMENT."""
    lists, policy = _lists(body), context.pool.policy
    steps = _step_changes(body.steps)
    return await _change(
        context,
        caller,
        body.reason,
        lambda tx, change: changes.assign(tx, id_, body.team, lists, policy, change, steps),
    )


@router.post("/{id_}/priority")
async def set_request_priority(
    id_: RequestId,
    body: RequestPriority,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> RequestSummary:
    """Change the priority of a request. Its waiting jobs follow."""
    return await _change(
        context, caller, body.reason, lambda tx, change: changes.set_priority(tx, id_, body.priority, change)
    )


@router.post("/{id_}/sites")
async def set_request_sites(
    id_: RequestId,
    body: RequestSites,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> RequestSummary:
    """Change the lists of sites and the trust flags of a request. Its waiting jobs follow."""
    lists, policy = _lists(body), context.pool.policy
    if lists.is_empty:
        raise InvalidInput("no list and no flag is given", hint="give sites, banned_sites or a trust flag")
    return await _change(
        context, caller, body.reason, lambda tx, change: changes.set_sites(tx, id_, lists, policy, change)
    )


def _lists(body: RequestSites | RequestAssignment) -> SiteLists:
    def frozen(names: Sequence[str] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(dict.fromkeys(names))

    return SiteLists(frozen(body.sites), frozen(body.banned_sites), body.trust_input, body.trust_pileup)


def _step_changes(body: StepChange) -> StepChanges:
    return StepChanges(body.step, body.resources, body.splitting)


@router.post("/{id_}/clone")
async def clone_request(
    id_: RequestId,
    body: RequestClone,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> RequestSummary:
    """Submit a request again, with some facts changed; returns the new request."""
    facts: dict[str, Any] = {"name": body.name or None, "team": body.team or None, "campaign": body.campaign}
    facts["priority"] = body.priority
    given = {name: value for name, value in facts.items() if value is not None}
    pool, actor, now = context.pool, _actor(caller), context.clock()
    steps = _step_changes(body.steps)
    row = await context.writer.acall(
        lambda tx: copies.clone(
            pool.policy, tx, id_, actor, changes=given, steps=steps, inputs=body.inputs, key=body.key, now=now
        )
    )
    return progress.summary_of(row)


@router.post("/{id_}/resubmit")
async def resubmit_request(
    id_: RequestId,
    body: RequestResubmission,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> ResubmissionAccepted:
    """Make the failed parts of an ended request again that no other resubmission has; returns the new request."""
    pool, actor, now = context.pool, _actor(caller), context.clock()
    steps = _step_changes(body.steps)
    new = await context.writer.acall(
        lambda tx: copies.resubmit(
            pool.policy, tx, id_, actor, steps=steps, inputs=body.inputs, key=body.key, now=now
        )
    )
    left_out = [ResubmissionCount(request, parts) for request, parts in new.left_out]
    return ResubmissionAccepted(**asdict(progress.summary_of(new.row)), parts=new.parts, left_out=left_out)
