"""Routes to list task queues and sites."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query, Response

from pilotage.core.queues.fit import site_allowed
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.server.context import Context, caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.shares.table import STRANDED
from pilotage.store.tables import listing
from pilotage.store.tables.pilot_demand import PilotsOfQueue, live_by_queue
from pilotage.wire import limits
from pilotage.wire.limits import MAX_PAGE
from pilotage.wire.pool import QueuesPage, QueueSummary, SiteSummary

router = APIRouter(prefix="/v1", tags=["places"], route_class=CheckedRoute)


def _may_see(caller: Caller, queue: IndexedQueue) -> bool:
    viewer = caller.viewer()
    identity = queue.identity
    return (
        viewer.everything or identity.owner == viewer.owner or identity.group == (viewer.shared_group or None)
    )


@router.get("/queues", response_model=QueuesPage)
def queues(
    after: limits.Cursor = 0,
    limit: int = Query(100, ge=1, le=MAX_PAGE),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Response:
    """The task queues with waiting jobs that the caller may see, by id."""
    indexed = list(context.pool.queues.index.entries.values())
    waiting = [queue for queue in indexed if queue.id > after and queue.waiting]
    visible = sorted((queue for queue in waiting if _may_see(caller, queue)), key=lambda queue: queue.id)
    pilots = live_by_queue(context.readers.connection(), [queue.id for queue in visible[:limit]])
    nobody = PilotsOfQueue(0, 0)
    rows = ((queue.id, _summary(queue, pilots.get(queue.id, nobody))) for queue in visible[:limit])
    return page("queues", rows, limit)


def _summary(queue: IndexedQueue, pilots: PilotsOfQueue) -> QueueSummary:
    identity = queue.identity
    return QueueSummary(
        id=queue.id,
        owner=identity.owner,
        group=identity.group,
        setup=identity.setup,
        cpu_time=identity.cpu_time,
        memory=identity.memory,
        processors=identity.processors,
        job_type=identity.job_type,
        sites=sorted(identity.sites),
        banned_sites=sorted(identity.banned_sites),
        grid_ces=sorted(identity.grid_ces),
        platforms=sorted(identity.platforms),
        tags=sorted(identity.tags),
        pilot_types=sorted(identity.pilot_types),
        requirements=identity.requirements,
        waiting=queue.waiting,
        priority=queue.priority,
        note="" if queue.admitted else STRANDED,
        pilots_waiting=pilots.waiting,
        pilots_running=pilots.running,
    )


@router.get("/sites")
def sites(context: Context = Depends(context_of), caller: Caller = Depends(caller_of)) -> list[SiteSummary]:
    """Every site of the policy, with its pilots, its running jobs, and the waiting jobs that may run there."""
    policy, connection = context.pool.policy, context.readers.connection()
    pilots_by_site = listing.pilots_by_site(connection)
    running = listing.running_by_site(connection)
    indexed = [queue for queue in list(context.pool.queues.index.entries.values()) if _may_see(caller, queue)]
    return [
        SiteSummary(
            name=name,
            ces=sorted(ce for ce, facts in policy.ces.items() if facts.site == name),
            pilots=pilots_by_site.get(name, {}),
            running=running.get(name, 0),
            waiting=sum(queue.waiting for queue in indexed if site_allowed(queue.identity, name)),
        )
        for name in sorted(policy.sites)
    ]
