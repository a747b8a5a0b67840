"""The route that tells whose jobs ran in a batch job or on a node."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pilotage.core.errors import Forbidden, InvalidInput, NotFound
from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.store.tables import trace as rows
from pilotage.wire.limits import Instant, Name
from pilotage.wire.trace import Trace, TracedJob, TracedPilot

router = APIRouter(prefix="/v1", tags=["administration"], route_class=CheckedRoute)

MOST_JOBS = 10_000


@router.get("/trace")
def trace(
    batch_id: Annotated[Name, Query()] = "",
    node: Annotated[Name, Query()] = "",
    at: Annotated[Instant | None, Query()] = None,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Trace:
    """The pilots of a batch id, or of a node at an instant (now), and their jobs. Administrators, of a site for it."""
    policy = context.pool.policy
    if not any(caller.administers(policy, site) for site in ("", *policy.sites)):
        raise Forbidden(
            f"{caller.user} administers no site", hint="see `administrators` of the sites in the policy"
        )
    if bool(batch_id) == bool(node):
        raise InvalidInput("name either a batch id or a node", field="batch_id")
    connection = context.readers.connection()
    if node and at is None:
        at = context.clock()
    traced = (
        rows.pilots_of_batch_id(connection, batch_id)
        if batch_id
        else rows.pilots_at(connection, node, at or 0.0)
    )
    pilots = [pilot for pilot in traced if caller.administers(policy, pilot.site)]
    if not pilots:
        subject = f"batch id {batch_id}" if batch_id else f"node {node} at that time"
        raise NotFound(f"no pilot of {subject} is known", hint="pilots are kept for `retention.pilots`")
    attempts = rows.attempts_of(connection, pilots, at, MOST_JOBS)
    return Trace(
        [TracedPilot(*pilot[:-1]) for pilot in pilots],
        [
            TracedJob(
                attempt.job,
                attempt.epoch,
                attempt.owner,
                attempt.group,
                attempt.pilot,
                attempt.started,
                attempt.ended,
                attempt.outcome,
                attempt.processors,
            )
            for attempt in attempts
        ],
        complete=len(attempts) < MOST_JOBS,
    )
