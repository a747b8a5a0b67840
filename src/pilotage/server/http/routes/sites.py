"""Routes to list task queues, sites and partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fastapi import Response

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import QueueId
from pilotage.core.queues.indexed_queue import IndexedQueue, waiting_by_site
from pilotage.core.sites import SiteState
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call, utc_text
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.policy.partitions import partition_summaries
from pilotage.services.policy.site_states import set_site_state as set_state
from pilotage.services.pool.records import RecordedReason
from pilotage.services.shares.table import STRANDED
from pilotage.services.why.wait_history import last_reasons
from pilotage.store.tables import listing, site_states
from pilotage.store.tables.pilot_demand import PilotsOfQueue, live_by_queue
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pool import COUNT_WAITING, LIST_QUEUES, QueuesQuery, QueueSummary, WaitingJobs
from pilotage.wire.sites import (
    LIST_PARTITIONS,
    LIST_SITES,
    SET_SITE_STATE,
    PartitionSummary,
    SiteStateRequest,
    SiteSummary,
)

router = CallRouter("places")

NOT_RECORDED = RecordedReason("", "", 0.0)


def _waiting_queues(context: Context, caller: Caller) -> list[IndexedQueue]:
    """The task queues with waiting jobs that the caller may see."""
    viewer, indexed = caller.viewer(), list(context.pool.queues.index.entries.values())
    owner, group = viewer.owner, viewer.shared_group or None
    return [
        queue
        for queue in indexed
        if queue.waiting
        and (viewer.everything or queue.identity.owner == owner or queue.identity.group == group)
    ]


def _reasons(context: Context) -> Mapping[QueueId, RecordedReason]:
    """The last recorded reasons. Only the server that records them has them in memory."""
    recorded = context.pool.queues.recorded_reasons
    return last_reasons(context.readers.connection()) if recorded is None else dict(recorded)


@router.call(LIST_QUEUES)
def queues(asked: QueuesQuery, context: TheContext, caller: TheCaller) -> Response:
    """The task queues with waiting jobs that the caller may see, by id."""
    reasons = _reasons(context)
    waiting = [
        queue
        for queue in _waiting_queues(context, caller)
        if queue.id > asked.after
        and (not asked.reason or reasons.get(queue.id, NOT_RECORDED).reason == asked.reason)
    ]
    shown = sorted(waiting, key=lambda queue: queue.id)[: asked.limit]
    pilots = live_by_queue(context.readers.connection(), [queue.id for queue in shown])
    nobody = PilotsOfQueue(0, 0)
    rows = (
        (queue.id, _summary(queue, pilots.get(queue.id, nobody), reasons.get(queue.id, NOT_RECORDED)))
        for queue in shown
    )
    return page("queues", rows, asked.limit)


@router.call(COUNT_WAITING)
def count_waiting(context: TheContext, caller: TheCaller) -> list[WaitingJobs]:
    """The waiting jobs that the caller may see, by the last recorded reason and group."""
    reasons, counts = _reasons(context), dict[tuple[str, str], WaitingJobs]()
    for queue in _waiting_queues(context, caller):
        recorded, group = reasons.get(queue.id, NOT_RECORDED), queue.identity.group
        count = counts.setdefault((recorded.reason, group), WaitingJobs(recorded.reason, group, 0, 0))
        count.queues += 1
        count.jobs += queue.waiting
        if recorded.reason:
            count.since = recorded.began if count.since is None else min(count.since, recorded.began)
    return [counts[key] for key in sorted(counts)]


def _summary(queue: IndexedQueue, pilots: PilotsOfQueue, recorded: RecordedReason) -> QueueSummary:
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
        wall_time=identity.wall_time,
        pilot_types=sorted(identity.pilot_types),
        requirements=identity.requirements,
        host_requirements=identity.host_requirements,
        output_se=identity.output_se,
        disk=identity.disk,
        waiting=queue.waiting,
        priority=queue.priority,
        note="" if queue.admitted else STRANDED,
        pilots_waiting=pilots.waiting,
        pilots_running=pilots.running,
        reason=recorded.reason,
        detail=recorded.detail,
        since=recorded.began if recorded.reason else None,
    )


@router.call(LIST_PARTITIONS)
def partitions(context: TheContext, caller: TheCaller) -> list[PartitionSummary]:
    """The partitions of Slurm's commands: their CEs, states and longest jobs."""
    pool, connection = context.pool, context.readers.connection()
    return partition_summaries(pool.policy, pool.site_state, connection)


@router.call(LIST_SITES)
def sites(context: TheContext, caller: TheCaller) -> list[SiteSummary]:
    """Every site of the policy: its state, pilots and running jobs, and the waiting jobs that may run there."""
    return _summaries(context, caller, sorted(context.pool.policy.sites))


def _summaries(context: Context, caller: Caller, names: Sequence[str]) -> list[SiteSummary]:
    pool, connection = context.pool, context.readers.connection()
    pilots_by_site, running = listing.pilots_by_site(connection), listing.running_by_site(connection)
    waiting = waiting_by_site(_waiting_queues(context, caller), names)
    slots, switched = pool.site_slots(), pool.offers.site_states
    ces: dict[str, list[str]] = {}
    for ce, section in sorted(pool.policy.ces.items()):
        ces.setdefault(section.site, []).append(ce)
    summaries = []
    for name in names:
        row = switched.get(name)
        summary = SiteSummary(
            name=name,
            ces=ces.get(name, []),
            pilots=pilots_by_site.get(name, {}),
            running=running.get(name, 0),
            waiting=waiting[name],
            state=str(pool.site_state(name)),
            slots=slots.get(name, 0),
        )
        if row is not None:
            summary.changed_by, summary.reason = row.changed_by, row.reason
            summary.since, summary.until = row.since, row.until
        if row is None or summary.state != row.state:
            summary.reason = _POLICY_SAYS.get(summary.state, "")
        summaries.append(summary)
    return summaries


_POLICY_SAYS = {"drain": "the policy drains it", "down": "the policy bans it"}


@router.call(SET_SITE_STATE)
async def set_site_state(body: SiteStateRequest, context: TheContext, caller: TheCaller) -> SiteSummary:
    """Drain a site, take it down, or make it normal. Administrators, of a site for it."""
    pool, now = context.pool, context.clock()
    caller.need_site_administrator(pool.policy, body.site)
    if body.state not in list(SiteState):
        raise InvalidInput(
            f"no such state of a site: {body.state}", hint="normal, drain or down", field="state"
        )
    await context.writer.acall(
        audited(
            audited_call(context, caller, SET_SITE_STATE, f"site {body.site}", body.reason),
            lambda tx: set_state(
                pool,
                tx,
                body.site,
                SiteState(body.state),
                by=caller.user,
                reason=body.reason,
                now=now,
                until=body.until,
            ),
            state=lambda tx: _state_text(tx, body.site),
        )
    )
    context.wake.local_ces.set()
    [summary] = await asyncio.to_thread(_summaries, context, caller, [body.site])
    return summary


def _state_text(tx: Transaction, site: str) -> str:
    """The state of a site, for the audit log."""
    row = site_states.load(tx.connection).get(site)
    if row is None:
        return str(SiteState.NORMAL)
    return str(row.state) if row.until is None else f"{row.state} until {utc_text(row.until)}"
