"""An iteration of the director as administrators see it, from the very facts and decisions of the iteration."""

from __future__ import annotations

from collections import Counter

from pilotage.core.brokering.match import UNRANKED
from pilotage.core.errors import NotFound
from pilotage.core.ids import QueueId
from pilotage.core.provisioning.demand import QueueDemand
from pilotage.core.provisioning.iteration import (
    GENERIC,
    PRIVATE,
    CeLoad,
    QueueDecision,
    required_type,
    type_at,
)
from pilotage.core.provisioning.submit_pools import PoolLoad
from pilotage.core.queues.fit import static_failure
from pilotage.services.director.demand import Iteration
from pilotage.services.matching.known_offers import as_private
from pilotage.services.why.wording import CONDITIONS
from pilotage.wire.director import (
    DirectorCe,
    DirectorPool,
    DirectorReport,
    QueuePilots,
    QueueReport,
)


def report(
    work: Iteration, *, seed: int, number: int | None, queue: int | None, limit: int
) -> DirectorReport:
    """The report of an iteration. `number`: None if it was only computed. `queue`: the only queue to report."""
    facts, settings = work.facts, work.facts.settings
    decisions = sorted(work.decisions, key=lambda decision: decision.queue.id)
    shown = [decision for decision in decisions if queue in (None, decision.queue.id)]
    if queue is not None and not shown:
        raise NotFound(
            f"queue {queue} took no part in the iteration",
            hint="only queues with waiting jobs do: `pilotage queue list`",
        )
    ordered = Counter[str]()
    for decision in decisions:
        for order in decision.orders:
            ordered[order.ce] += order.pilots
    queues = [_queue(decision) for decision in shown[:limit]]
    if queue is not None:
        queues[0].ces = ce_verdicts(work, shown[0])
    return DirectorReport(
        acted=number is not None,
        number=number,
        at=work.now,
        seed=seed,
        demand=settings.demand,
        parameters=_parameters(work),
        pilots=ordered.total(),
        queue_count=len(decisions),
        pools=[_pool(work, pool) for pool in facts.pools.values()],
        ces=[_ce(work, ce, ordered[ce.name]) for ce in facts.ces],
        queues=queues,
    )


def _pool(work: Iteration, pool: PoolLoad) -> DirectorPool:
    settings = work.facts.settings.pool(pool.name)
    return DirectorPool(
        *(pool.name, str(pool.verdict()), pool.submissions, pool.total),
        max_threads=settings.max_threads,
        rank=settings.rank if settings.enable_list_match else "",
        cpu_normalization=settings.cpu_normalization,
    )


def _ce(work: Iteration, ce: CeLoad, ordered: int) -> DirectorCe:
    has_rank = work.facts.settings.pool(ce.pool).enable_list_match and not ce.closed
    return DirectorCe(
        *(ce.name, ce.pool, sorted(ce.pilot_types), ordered, ce.room, ce.closed),
        cpu_power=work.policy.ces[ce.name].cpu_power,
        cpu_time=float(ce.offer.cpu_time),
        rank=ce.rank if has_rank and ce.rank > UNRANKED else None,
    )


def _parameters(work: Iteration) -> dict[str, float]:
    sums, settings = work.facts.sums, work.facts.settings
    target = settings.pilots_per_iteration
    return {
        "pilotsPerIteration": target,
        "prioritySum": sums.priority,
        "waitingJobs": sums.jobs,
        "pilotsPerPriority": target / sums.priority if sums.priority else 0.0,
        "pilotsPerJob": target / sums.jobs if sums.jobs else 0.0,
        "maxCPU": work.facts.max_cpu,
        "lowestCPUBoost": settings.lowest_cpu_boost,
        "extraPilotFraction": settings.extra_pilot_fraction,
        "extraPilots": settings.extra_pilots,
        "maxPilotWaitingHours": settings.max_pilot_waiting_hours,
        "PrivatePilotFraction": settings.private_pilot_fraction,
    }


def _queue(decision: QueueDecision) -> QueueReport:
    queue, demand = decision.queue, decision.demand
    row = QueueReport(
        queue=queue.id,
        owner=queue.identity.owner,
        group=queue.identity.group,
        cpu_time=queue.identity.cpu_time,
        priority=queue.priority,
        jobs=queue.jobs,
        waiting=queue.waiting,
        demand=demand.pilots,
        submitted=decision.submitted,
        shortfall=str(decision.shortfall),
        pilot_type=decision.pilot_type or "",
        pool=decision.pool,
        pools_tried={name: str(verdict) for name, verdict in decision.tried},
        orders=[QueuePilots(order.ce, order.pilot_type, order.pilots) for order in decision.orders],
    )
    if isinstance(demand, QueueDemand):
        row.by_priority, row.by_jobs, row.boost = demand.by_priority, demand.by_jobs, demand.boost
        row.mean, row.drawn, row.cap = demand.mean, demand.drawn, demand.cap
    else:
        row.covered = demand.covered
    return row


def ce_verdicts(work: Iteration, decision: QueueDecision) -> dict[str, str]:
    """CE → why it gets no pilot of the queue; empty: it got some, or may get some."""
    chosen = {order.ce for order in decision.orders}
    return {
        ce.name: "" if ce.name in chosen else _refusal(work, decision, place, ce)
        for place, ce in enumerate(work.facts.ces)
    }


def _refusal(work: Iteration, decision: QueueDecision, place: int, ce: CeLoad) -> str:
    """The first reason in the order in which the iteration asks."""
    queue = decision.queue
    identity, required = queue.identity, required_type(queue.identity)
    pools = work.facts.pools_of(queue)
    if ce.pool not in pools:
        return f"it is in pool {ce.pool}; the queue's pools: {', '.join(pools)}"
    chosen = decision.pilot_type or required or GENERIC
    pilot_type = type_at(chosen, required, ce.pilot_types)
    if pilot_type is None:
        return f"the queue needs {chosen} pilots; it takes {' and '.join(sorted(ce.pilot_types)) or 'none'}"
    offer = as_private(ce.offer) if pilot_type == PRIVATE else ce.offer
    failed = static_failure(identity, offer)
    if failed is not None:
        return CONDITIONS.get(failed, f"the queue does not fit: {failed}")
    match = work.fitting.matches.get(queue, pilot_type)
    if match is not None and not match.fits[place]:
        return match.refusal(place)
    if identity.grid_middlewares and ce.middleware.casefold() not in {
        name.casefold() for name in identity.grid_middlewares
    }:
        return f"its middleware is {ce.middleware}; the queue allows {', '.join(sorted(identity.grid_middlewares))}"
    if QueueId(queue.id) in work.fitting.pauses[place]:
        return "the last pilots for this queue found no job there: it waits before the next one"
    if ce.closed:
        return ce.closed
    if decision.pool and ce.pool != decision.pool:
        return f"the pilots went to pool {decision.pool}"
    if ce.draining:
        return "its site is draining"
    return "" if ce.room > 0 else ce.full or "no room: max_waiting or max_running is reached"
