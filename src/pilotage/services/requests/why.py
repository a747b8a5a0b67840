"""Answers to `why` for requests and elements, by the functions that decide a pull."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.core.plurals import plural
from pilotage.core.requests.states import EDITABLE, REQUEST_STATES, RequestState
from pilotage.core.workqueue.pull import SiteRoom
from pilotage.core.workqueue.roll_up import WORKING, is_working
from pilotage.core.workqueue.states import ElementState
from pilotage.core.workqueue.thresholds import slots_of_sites
from pilotage.core.workqueue.why import AgentFacts, PullFacts, WaitingGroup, unblocks, verdicts
from pilotage.services.requests.input_why import awaited_input, catalogue_notes
from pilotage.services.requests.made_jobs_why import explain_made_jobs
from pilotage.services.requests.why_wording import CHANGES_SHOWN, best_advice, closest_condition
from pilotage.services.workqueue.loads import AgentLoad
from pilotage.services.workqueue.pull import room_of_agent
from pilotage.services.workqueue.state import WorkQueue, site_rules
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import (
    agents,
    element_listing,
    queued_requests,
    registrations,
    request_waits,
    requests,
)
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.queued_requests import QueuedRequest
from pilotage.store.tables.request_waits import ElementFacts
from pilotage.wire.request_why import RequestWhy, RequestWhyChange, SiteCondition

_BEFORE_THE_QUEUE: Mapping[RequestState, tuple[str, str]] = {
    RequestState.NEW: ("it is not approved", "`pilotage request approve {id}` (production managers)"),
    RequestState.ASSIGNMENT_APPROVED: (
        "it has no team, so no agent may take it",
        "`pilotage request assign {id} --team TEAM` (production managers)",
    ),
    RequestState.STAGING: (
        "its input is being brought to the sites",
        "data placement changes its state when the input is there",
    ),
}


PAUSED = "it is paused: agents get none of its elements, and none of its made jobs are released"


def why_request(
    work_queue: WorkQueue, connection: Connection, request: QueuedRequest, now: float
) -> RequestWhy:
    """Why a request is not further."""
    answer = RequestWhy(
        request.id,
        request.name,
        request.state,
        "",
        elements=request_waits.elements_by_state(connection, request.id),
        jobs=request_waits.jobs_by_state(connection, request.id),
        next_retry=request_waits.next_retry(connection, request.id),
        waiting_job=request_waits.waiting_job(connection, request.id),
    )
    state = RequestState(request.state)
    if state in _BEFORE_THE_QUEUE:
        answer.summary, advice = _BEFORE_THE_QUEUE[state]
        answer.advice = advice.format(id=request.id)
    elif request.paused and state in EDITABLE["pause"]:
        answer.summary, answer.advice = PAUSED, f"`pilotage request resume {request.id}`"
    elif state in (RequestState.ASSIGNED, RequestState.STAGED):
        answer.summary, answer.advice = _intake(connection, request)
    elif state not in WORKING:
        row = requests.by_id(connection, request.id)
        reason = "" if row is None else row.reason
        answer.summary = f"it is {state}: {reason or REQUEST_STATES.rows[state].meaning}"
        _name_waiting_outputs(connection, answer)
    elif groups := _groups(work_queue, connection, request, answer, now):
        _explain_elements(work_queue, connection, request, answer, groups, now)
        if answer.jobs.get("made"):
            explain_made_jobs(work_queue, connection, request, answer, now)
    else:
        answer.summary, answer.advice = _after_the_queue(work_queue, connection, request, answer, now)
    _name_failures(connection, answer)
    return answer


def _name_waiting_outputs(connection: Connection, answer: RequestWhy) -> None:
    """Add the outputs of a request that an outside catalogue does not have."""
    for waiting in registrations.waiting_of_request(connection, answer.request):
        blocks = plural(waiting.blocks, "block")
        answer.summary += f"; {blocks} of its outputs not registered at {waiting.catalogue}"
        answer.summary += f": {waiting.problem}" if waiting.problem else ""
        answer.advice = f"`pilotage catalogue show {waiting.catalogue}`"


def why_element(
    work_queue: WorkQueue,
    connection: Connection,
    request: QueuedRequest,
    number: int,
    element: ElementFacts,
    now: float,
) -> RequestWhy:
    """Why one element of a request is not further."""
    answer = RequestWhy(
        request.id,
        request.name,
        request.state,
        "",
        element=number,
        elements={element.state: 1},
        jobs=request_waits.jobs_by_state(connection, request.id, number),
        waiting_job=request_waits.waiting_job(connection, request.id, number),
    )
    state = ElementState(element.state)
    if request.paused and state in (ElementState.AVAILABLE, ElementState.RUNNING):
        answer.summary, answer.advice = PAUSED, f"`pilotage request resume {request.id}`"
    elif groups := _groups(work_queue, connection, request, answer, now, element):
        _explain_elements(work_queue, connection, request, answer, groups, now)
    elif state in (ElementState.NEGOTIATING, ElementState.ACQUIRED):
        agent = None if element.agent_id is None else agents.by_id(connection, element.agent_id)
        holder = "an agent" if agent is None else f"agent {agent.name} ({agent.status(now)})"
        answer.summary = f"{holder} has it for site {element.site}, and splits it into jobs"
        answer.advice = (
            "`pilotage agent list` shows the agents; an element of a lost agent goes back by itself"
        )
    elif state is ElementState.AVAILABLE:
        answer.summary = f"its request is {request.state}"
        answer.advice = f"`pilotage why request:{request.id}`"
    elif state is ElementState.RUNNING:
        answer.summary, answer.advice = _after_the_queue(work_queue, connection, request, answer, now)
    else:
        answer.summary = f"it is {state}" + (f": {element.reason}" if element.reason else "")
    return answer


def pull_facts(
    work_queue: WorkQueue, connection: Connection, request: QueuedRequest, now: float
) -> PullFacts:
    """The facts that the next pull of the request's team would decide by."""
    live = agents.live_of_team(connection, request.team, now)
    rows = [row for row in (agents.by_id(connection, agent) for agent in live) if row is not None]
    slots = slots_of_sites(work_queue.pool.site_slots(), len(rows), work_queue.slot_rules)
    return PullFacts(
        site_rules(request),
        work_queue.site_states(),
        tuple(_agent(work_queue, connection, row, slots, now) for row in rows),
        request.team,
        _other_teams(work_queue, connection, request),
        closed_by_policy=work_queue.closed_by_policy(),
    )


def _agent(
    work_queue: WorkQueue, connection: Connection, row: AgentRow, slots: Mapping[str, int], now: float
) -> AgentFacts:
    load = AgentLoad.read(connection, row.id, now)
    room: SiteRoom = room_of_agent(connection, row.id, slots, load)
    return AgentFacts(row.name, room, load.in_pool >= work_queue.pool.policy.requests.owner_limit)


def _groups(
    work_queue: WorkQueue,
    connection: Connection,
    request: QueuedRequest,
    answer: RequestWhy,
    now: float,
    element: ElementFacts | None = None,
) -> list[WaitingGroup]:
    """The available elements of a request, or one of them, by their locations; only such that agents may pull."""
    if not answer.elements.get(ElementState.AVAILABLE):
        return []
    steps = {step.position: step for step in queued_requests.steps_of(connection, [request.id])}
    counted = request_waits.waiting_elements(connection, request.id)
    if element is not None:
        counted = [request_waits.WaitingElements(element.step, element.location_set, 1)]
    return [
        WaitingGroup(
            row.elements,
            request.priority,
            work_queue.locations(connection, steps[row.step], row.location_set, now),
        )
        for row in counted
        if is_working(request.state, steps[row.step].type)
    ]


def _other_teams(work_queue: WorkQueue, connection: Connection, request: QueuedRequest) -> tuple[str, ...]:
    """The teams, but for that of the request, that have agents."""
    known = {*agents.teams(connection), work_queue.pool.policy.requests.agent_team}
    return tuple(sorted(known - {request.team, ""}))


def _explain_elements(
    work_queue: WorkQueue,
    connection: Connection,
    request: QueuedRequest,
    answer: RequestWhy,
    groups: Sequence[WaitingGroup],
    now: float,
) -> None:
    """Tell the verdicts of the sites about available elements, and the changes that help."""
    facts = pull_facts(work_queue, connection, request, now)
    total = sum(group.number for group in groups)
    open_ = sum(group.number for group in groups if facts.is_open(group))
    rows, changes = verdicts(groups, facts), unblocks(groups, facts)
    answer.sites = [
        SiteCondition(row.site, "" if row.verdict is None else str(row.verdict), row.number) for row in rows
    ]
    answer.changes = [RequestWhyChange(*change) for change in changes[:CHANGES_SHOWN]]
    noun = "element" if total == 1 else "elements"
    if open_:
        answer.summary = f"{open_:,} of {total:,} waiting {noun} may be taken by the next pull of an agent"
    else:
        answer.summary = f"no site takes its {total:,} waiting {noun} now: {closest_condition(rows)}"
    if open_ < total and (notes := catalogue_notes(connection, request)):
        answer.summary += f"; {notes}"
    if open_ < total:
        answer.advice = best_advice(rows, changes, facts.closed_by_policy)


def _name_failures(connection: Connection, answer: RequestWhy) -> None:
    """Add the commonest reason of elements that could not be split."""
    if not answer.elements.get(ElementState.FAILED):
        return
    for failed in element_listing.failed(connection, answer.request, 1):
        noun = "element" if failed.number == 1 else "elements"
        answer.summary += f"; {failed.number:,} {noun} failed: {failed.reason or 'no reason is known'}"
    answer.advice = answer.advice or f"`pilotage request show {answer.request}` shows the errors"


def _intake(connection: Connection, request: QueuedRequest) -> tuple[str, str]:
    if not request.team:
        return (
            "it has no team, so no agent may take it",
            f"`pilotage request assign {request.id} --team TEAM` (production managers)",
        )
    if not request_waits.elements_by_state(connection, request.id):
        summary, advice = awaited_input(connection, request)
        if summary:
            return summary, advice
    return "its elements are being made", "intake takes requests by priority, some each second"


def _after_the_queue(
    work_queue: WorkQueue, connection: Connection, request: QueuedRequest, answer: RequestWhy, now: float
) -> tuple[str, str]:
    """For work that agents have taken: where it is now."""
    jobs = answer.jobs
    if jobs.get("made"):
        return explain_made_jobs(work_queue, connection, request, answer, now)
    if answer.waiting_job is not None:
        released = jobs.get("released", 0)
        return (
            f"{plural(released, 'job')} {'is' if released == 1 else 'are'} in the pool, and some wait there",
            f"`pilotage why {answer.waiting_job}` explains the oldest",
        )
    if jobs.get("released"):
        return f"{plural(jobs['released'], 'job')} {'runs' if jobs['released'] == 1 else 'run'}", ""
    if jobs.get("cooloff"):
        return f"{plural(jobs['cooloff'], 'failed job')} to be made again after a pause", ""
    if answer.elements.get(ElementState.NEGOTIATING) or answer.elements.get(ElementState.ACQUIRED):
        return "agents split its elements into jobs", "`pilotage agent list`"
    if answer.elements.get(ElementState.CANCEL_REQUESTED):
        return "elements are being cancelled", "an agent confirms it, or loses its elements if it is silent"
    summary, advice = awaited_input(connection, request) if answer.element is None else ("", "")
    return summary or "all of its work has ended; its state will change soon", advice
