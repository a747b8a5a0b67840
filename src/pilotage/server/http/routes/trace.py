"""The route that tells whose jobs ran in a batch job or on a node."""

from __future__ import annotations

from pilotage.core.errors import Forbidden, InvalidInput, NotFound
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.store.tables import trace as rows
from pilotage.wire.trace import TRACE, Trace, TracedJob, TracedPilot, TraceQuery

router = CallRouter("administration")

MOST_JOBS = 10_000


@router.call(TRACE)
def trace(asked: TraceQuery, context: TheContext, caller: TheCaller) -> Trace:
    """The pilots of a batch id, or of a node at an instant (now), and their jobs. Administrators, of a site for it."""
    policy, batch_id, node, at = context.pool.policy, asked.batch_id, asked.node, asked.at
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
        [TracedJob(*attempt) for attempt in attempts],
        complete=len(attempts) < MOST_JOBS,
    )
