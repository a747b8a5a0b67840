"""Routes that explain why a request, or an element, is not further."""

from __future__ import annotations

from pilotage.core.errors import NotFound
from pilotage.core.requests.states import RequestState
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.tokens import Caller
from pilotage.services.requests import why
from pilotage.services.requests.rights import Actor
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import queued_requests, request_waits, requests
from pilotage.store.tables.queued_requests import QueuedRequest
from pilotage.wire.limits import Id
from pilotage.wire.request_why import WHY_ELEMENT, WHY_REQUEST, RequestWhy

router = CallRouter("why")

_WORKING = frozenset(
    {RequestState.ASSIGNED, RequestState.ACQUIRED, RequestState.RUNNING_OPEN, RequestState.RUNNING_CLOSED}
)
"""States in which jobs of a request run, or soon will."""


@router.call(WHY_REQUEST)
def why_request(request: Id, context: TheContext, caller: TheCaller) -> RequestWhy:
    """The reason why a request is not further: the conditions at each site, and the changes that would help."""
    connection = context.readers.connection()
    row = _find(connection, caller, request, f"there is no request {request}")
    # A work queue of its own: the server's one belongs to the writer's thread.
    return _with_storage(context, why.why_request(WorkQueue(context.pool), connection, row, context.clock()))


@router.call(WHY_ELEMENT)
def why_element(element: Id, context: TheContext, caller: TheCaller) -> RequestWhy:
    """The reason why an element of a request is not further."""
    connection, missing = context.readers.connection(), f"there is no element {element}"
    facts = request_waits.element(connection, element)
    if facts is None:
        raise NotFound(missing, hint="or it is not yours")
    row = _find(connection, caller, facts.request_id, missing)
    return why.why_element(WorkQueue(context.pool), connection, row, element, facts, context.clock())


def _with_storage(context: Context, answer: RequestWhy) -> RequestWhy:
    """Add the problems of S3 places, at which jobs of the request may wait or fail."""
    if answer.state not in _WORKING:
        return answer
    used = {place for site in context.pool.policy.sites.values() for place in site.storage}
    for name, state in sorted(context.work.storage.states.items()):
        if state.problem and name in used:
            answer.summary += f"; storage {name} does not serve: {state.problem}"
            answer.advice = answer.advice or f"`pilotage storage test {name}`"
    return answer


def _find(connection: Connection, caller: Caller, request: int, missing: str) -> QueuedRequest:
    """A request that the caller may see. Others' requests do not exist."""
    row = requests.by_id(connection, request)
    if row is None or not Actor(caller.user, caller.group, caller.properties).may_see(row):
        raise NotFound(missing, hint="or it is not yours; `pilotage request list`")
    return queued_requests.by_ids(connection, [request])[request]
