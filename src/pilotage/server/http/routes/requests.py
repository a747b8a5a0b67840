"""Routes for requests: submit, list, show, and the verbs that change one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from fastapi import Response

from pilotage.core.errors import InvalidInput
from pilotage.core.requests.parser import parse_mapping
from pilotage.core.requests.plan import plan_steps
from pilotage.core.requests.step_changes import StepChanges
from pilotage.core.requests.trace import with_trace_of_request
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.server.http.routes.catalogues import ensure_followed
from pilotage.server.http.routes.submissions import group_of, size_reader
from pilotage.server.http.spans import present_header
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.catalogue.following import catalogue_of
from pilotage.services.requests import changes, copies, progress, submission
from pilotage.services.requests.changes import Change, SiteLists
from pilotage.services.requests.rights import Actor, seen_request
from pilotage.services.requests.submission import PreparedRequest, requests_of
from pilotage.store.tables import requests as rows
from pilotage.store.tables.requests import ALL_SITES, RequestFilter, RequestRow
from pilotage.store.writer.transaction import LockingRequest, Transaction
from pilotage.wire import limits
from pilotage.wire.call import ApiCall
from pilotage.wire.queries import PageQuery
from pilotage.wire.requests import (
    ABORT_REQUEST,
    ANNOUNCE_REQUEST,
    APPROVE_REQUEST,
    ARCHIVE_REQUEST,
    ASSIGN_REQUEST,
    CHECK_REQUEST,
    CLONE_REQUEST,
    CLOSE_OUT_REQUEST,
    FORCE_COMPLETE_REQUEST,
    LIST_ELEMENTS,
    LIST_REQUESTS,
    PAUSE_REQUEST,
    REJECT_REQUEST,
    RESUBMIT_REQUEST,
    RESUME_REQUEST,
    SET_REQUEST_PRIORITY,
    SET_REQUEST_SITES,
    SHOW_HISTORY,
    SHOW_REQUEST,
    SUBMIT_REQUEST,
    ElementsQuery,
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
    RequestsQuery,
    RequestSubmission,
    RequestSummary,
    ResubmissionAccepted,
    StepChange,
)
from pilotage.wire.resubmissions import ResubmissionCount

router = CallRouter("requests")


def _actor(caller: Caller) -> Actor:
    return Actor(caller.user, caller.group, caller.properties)


@router.call(SUBMIT_REQUEST)
async def submit_request(body: RequestSubmission, context: TheContext, caller: TheCaller) -> RequestAccepted:
    """Accept a request. With a right to assign and a team, the work queue takes it at once."""
    context.disk.space.check()
    warnings = await _follow_inputs(context, caller, body)
    prepared = await asyncio.to_thread(_prepare, context, caller, body)
    prepared = replace(
        prepared, specification=with_trace_of_request(prepared.specification, present_header())
    )
    pool, now = context.pool, context.clock()
    row = await _add(context, caller, lambda tx: submission.submit(pool.policy, tx, prepared, now))
    return RequestAccepted(progress.summary_of(row), prepared.jobs, [*warnings, *prepared.warnings])


async def _follow_inputs(context: Context, caller: Caller, body: RequestSubmission) -> list[str]:
    """Copy the inputs that are named after an outside catalogue, and read them soon. Returns warnings."""
    specification = parse_mapping(body.specification)
    group = group_of(context.pool.policy, caller, specification.group)
    names = (*specification.input_datasets, *specification.pileup_datasets)
    outside = [name for name in names if catalogue_of(context.pool.policy, name)]
    warnings = [await ensure_followed(context, name, owner=caller.user, group=group) for name in outside]
    return [warning for warning in warnings if warning]


@router.call(CHECK_REQUEST)
def check_request(body: RequestSubmission, context: TheContext, caller: TheCaller) -> RequestCheck:
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
    specification = replace(specification, group=group_of(policy, caller, specification.group))
    submission.check_sites(specification, policy)
    announced = {file.digest: file.size for files in body.inputs.values() for file in files} if trial else {}

    size_of = size_reader(connection, caller.user, announced)
    specification = submission.with_uploads(specification, body.inputs, size_of, policy)
    prepared = PreparedRequest(specification, _actor(caller), body.key, body.origin)
    if body.origin is not None:
        seen_request(connection, prepared.actor, body.origin)
    return submission.check_data(
        connection, prepared, context.pool, strict=body.strict, confirmed=body.confirmed
    )


@router.call(LIST_REQUESTS)
def list_requests(asked: RequestsQuery, context: TheContext, caller: TheCaller) -> Response:
    """Requests that the caller may see, newest first, with ids below `before`."""
    actor, connection = _actor(caller), context.readers.connection()
    wanted = RequestFilter(tuple(asked.states or ()), asked.owner, asked.team, asked.campaign, asked.name)
    if not actor.sees_all:
        wanted = replace(wanted, visible_to=actor.user, visible_groups=actor.shared_groups)
    listed = rows.page(connection, wanted, before=asked.before, most=asked.limit)
    return page("requests", ((row.id, row) for row in progress.summaries(connection, listed)), asked.limit)


@router.call(SHOW_REQUEST)
def show_request(request: limits.Id, context: TheContext, caller: TheCaller) -> RequestDetail:
    """The funnel of one request: elements and jobs by state, sites, and errors with an example of each."""
    connection = context.readers.connection()
    row = seen_request(connection, _actor(caller), request)
    return progress.detail(connection, row, context.clock())


@router.call(SHOW_HISTORY)
def request_history(
    request: limits.Id, asked: PageQuery, context: TheContext, caller: TheCaller
) -> RequestHistory:
    """The events of a request, oldest first: moves between states, and changes with who made them."""
    connection = context.readers.connection()
    seen_request(connection, _actor(caller), request)
    stored = rows.events_of(connection, request, after=asked.after, most=asked.limit)
    events = [
        RequestEvent(event.id, event.at, event.actor, event.kind, event.old, event.new, event.detail)
        for event in stored
    ]
    return RequestHistory(events, stored[-1].id if len(stored) == asked.limit else None)


@router.call(LIST_ELEMENTS)
def request_elements(
    request: limits.Id, asked: ElementsQuery, context: TheContext, caller: TheCaller
) -> Response:
    """Elements of a request by rising id above `after`. `unchanged`: the least number of seconds in their state."""
    connection = context.readers.connection()
    row = seen_request(connection, _actor(caller), request)
    listed = progress.elements(
        connection,
        row,
        states=asked.states or (),
        step=asked.step,
        unchanged_since=context.clock() - asked.unchanged,
        after=asked.after,
        most=asked.limit,
    )
    return page("elements", ((element.id, element) for element in listed), asked.limit)


Result = TypeVar("Result")
Verb = Callable[[Transaction, Change], RequestRow]


async def _add(context: Context, caller: Caller, request: Callable[[Transaction], Result]) -> Result:
    """Carry out a request to the writer that may add a request of the caller."""
    return await context.writer.acall(LockingRequest(requests_of(caller.user), request))


async def _change(
    context: Context,
    caller: Caller,
    call: ApiCall[Any, RequestSummary],
    request: int,
    reason: str,
    verb: Verb,
) -> RequestSummary:
    change = Change(_actor(caller), context.clock(), reason)
    changed = audited(
        audited_call(context, caller, call, f"request {request}", reason),
        lambda tx: verb(tx, change),
        state=lambda tx: _state_text(rows.by_id(tx.connection, request)),
        owner=lambda tx: _owner(rows.by_id(tx.connection, request)),
    )
    return progress.summary_of(await context.writer.acall(changed))


def _owner(row: RequestRow | None) -> str:
    return row.owner if row else ""


def _state_text(row: RequestRow | None) -> str:
    """The facts of a request that verbs change, for the audit log."""
    if row is None:
        return ""
    sites = "all sites" if row.sites == ALL_SITES else f"sites {', '.join(row.sites) or 'none'}"
    parts = [str(row.state), "paused" if row.paused else "", f"of {row.owner}", f"priority {row.priority}"]
    parts += [f"team {row.team}" if row.team else "no team", sites]
    parts += [f"not {', '.join(row.banned_sites)}" if row.banned_sites else ""]
    parts += ["trusts input" if row.trust_input else "", "trusts pile-up" if row.trust_pileup else ""]
    return ", ".join(filter(None, parts))


def _serve(
    call: ApiCall[type[RequestChange], RequestSummary],
    verb: Callable[[Transaction, int, Change], RequestRow],
    effect: str,
) -> None:
    """The route of a verb that needs a reason only."""

    async def change_request(
        request: limits.Id, body: RequestChange, context: TheContext, caller: TheCaller
    ) -> RequestSummary:
        return await _change(
            context, caller, call, request, body.reason, lambda tx, change: verb(tx, request, change)
        )

    change_request.__name__, change_request.__doc__ = f"{verb.__name__}_request", effect
    router.call(call)(change_request)


_serve(APPROVE_REQUEST, changes.approve, "Approve a new request; one with a team is assigned too.")
_serve(
    REJECT_REQUEST,
    changes.reject,
    "Refuse a request that is not assigned, or the result of an ended one.",
)
_serve(
    PAUSE_REQUEST, changes.pause, "Give no more elements to agents and release no more jobs, until `resume`."
)
_serve(RESUME_REQUEST, changes.resume, "End the pause of a request.")
_serve(ABORT_REQUEST, changes.abort, "End a request: its elements and jobs are cancelled.")
_serve(
    FORCE_COMPLETE_REQUEST,
    changes.force_complete,
    "End a request early: jobs that are done count, the others are cancelled.",
)
_serve(CLOSE_OUT_REQUEST, changes.close_out, "Accept the result of a completed request.")
_serve(ANNOUNCE_REQUEST, changes.announce, "Tell that the accepted result of a request is there.")
_serve(ARCHIVE_REQUEST, changes.archive, "Walk an ended request to its archived state.")


@router.call(ASSIGN_REQUEST)
async def assign_request(
    request: limits.Id, body: RequestAssignment, context: TheContext, caller: TheCaller
) -> RequestSummary:
    """Give a request a team, lists of sites, splittings and resources. Needs PRODUCTION_MANAGEMENT."""
    lists, policy = _lists(body), context.pool.policy
    steps = _step_changes(body.steps)
    return await _change(
        context,
        caller,
        ASSIGN_REQUEST,
        request,
        body.reason,
        lambda tx, change: changes.assign(tx, request, body.team, lists, policy, change, steps),
    )


@router.call(SET_REQUEST_PRIORITY)
async def set_request_priority(
    request: limits.Id, body: RequestPriority, context: TheContext, caller: TheCaller
) -> RequestSummary:
    """Change the priority of a request. Its waiting jobs follow."""
    return await _change(
        context,
        caller,
        SET_REQUEST_PRIORITY,
        request,
        body.reason,
        lambda tx, change: changes.set_priority(tx, request, body.priority, change),
    )


@router.call(SET_REQUEST_SITES)
async def set_request_sites(
    request: limits.Id, body: RequestSites, context: TheContext, caller: TheCaller
) -> RequestSummary:
    """Change the lists of sites and the trust flags of a request. Its waiting jobs follow."""
    lists, policy = _lists(body), context.pool.policy
    if lists.is_empty:
        raise InvalidInput("no list and no flag is given", hint="give sites, banned_sites or a trust flag")
    return await _change(
        context,
        caller,
        SET_REQUEST_SITES,
        request,
        body.reason,
        lambda tx, change: changes.set_sites(tx, request, lists, policy, change),
    )


def _lists(body: RequestSites | RequestAssignment) -> SiteLists:
    def frozen(names: Sequence[str] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(dict.fromkeys(names))

    return SiteLists(frozen(body.sites), frozen(body.banned_sites), body.trust_input, body.trust_pileup)


def _step_changes(body: StepChange) -> StepChanges:
    return StepChanges(body.step, body.resources, body.splitting)


@router.call(CLONE_REQUEST)
async def clone_request(
    request: limits.Id, body: RequestClone, context: TheContext, caller: TheCaller
) -> RequestSummary:
    """Submit a request again, with some facts changed; returns the new request."""
    facts: dict[str, Any] = {"name": body.name or None, "team": body.team or None, "campaign": body.campaign}
    facts["priority"] = body.priority
    given = {name: value for name, value in facts.items() if value is not None}
    pool, actor, now = context.pool, _actor(caller), context.clock()
    steps, trace = _step_changes(body.steps), present_header()
    row = await _add(
        context,
        caller,
        lambda tx: copies.clone(
            *(pool.policy, tx, request, actor),
            changes=given,
            steps=steps,
            inputs=body.inputs,
            key=body.key,
            trace=trace,
            now=now,
        ),
    )
    return progress.summary_of(row)


@router.call(RESUBMIT_REQUEST)
async def resubmit_request(
    request: limits.Id, body: RequestResubmission, context: TheContext, caller: TheCaller
) -> ResubmissionAccepted:
    """Make the failed parts of an ended request again that no other resubmission has; returns the new request."""
    pool, actor, now = context.pool, _actor(caller), context.clock()
    steps, trace = _step_changes(body.steps), present_header()
    new = await _add(
        context,
        caller,
        lambda tx: copies.resubmit(
            *(pool.policy, tx, request, actor),
            steps=steps,
            inputs=body.inputs,
            key=body.key,
            trace=trace,
            now=now,
        ),
    )
    left_out = [ResubmissionCount(request, parts) for request, parts in new.left_out]
    return ResubmissionAccepted(**asdict(progress.summary_of(new.row)), parts=new.parts, left_out=left_out)
