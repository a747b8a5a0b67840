"""The unfinished pool jobs of a team's agents against the limits of sites. The release and `why` read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.core.workqueue.release import PROCESSING, AgentLoads, Limits, ReleaseRules, limits_of
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables.element_jobs import ReleasedCount
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep


def release_rules(work_queue: WorkQueue) -> ReleaseRules:
    settings = work_queue.pool.policy.requests
    return ReleaseRules(
        pending_fraction=settings.pending_fraction,
        overflow=settings.overflow,
        max_jobs_per_owner=settings.max_jobs_per_owner,
        owner_limit_factor=settings.owner_limit_factor,
    )


def counted_agent(agent: int, live: Sequence[int]) -> int:
    """The agent to which jobs count: a live one of the team stands for an agent that is gone."""
    return agent if agent in live or not live else live[agent % len(live)]


def loads_of_team(
    work_queue: WorkQueue,
    team: str,
    live: Sequence[int],
    counts: Sequence[ReleasedCount],
    requests: Mapping[int, QueuedRequest],
    steps: Mapping[tuple[int, int], QueuedStep],
) -> AgentLoads:
    """The pool jobs of a team, of all jobs of `counts`. `live`: its agents, which share the slots of each site."""
    agents, rules = len(live), release_rules(work_queue)
    slots = work_queue.pool.site_slots()

    def limits(site: str, job_type: str) -> Limits:
        return _fixed(
            work_queue, site, job_type, limits_of(slots.get(site, 0), agents, job_type, rules), agents
        )

    loads = AgentLoads(limits, rules)
    for count in counts:
        request, step = requests.get(count.request), steps.get((count.request, count.step))
        if request is not None and request.team == team:
            kind = step.type if step else PROCESSING
            number = {"running" if count.running else "pending": count.jobs}
            agent = counted_agent(count.agent, live)
            loads.add(agent, count.site, kind, request.priority, **number)
    return loads


def _fixed(work_queue: WorkQueue, site: str, job_type: str, limits: Limits, agents: int) -> Limits:
    """The limits with the fixed numbers of the policy in place of the computed ones."""
    settings, values = work_queue.pool.policy.requests, list(limits)
    for place, kind in ((0, ""), (2, job_type)):
        threshold = settings.threshold(site, kind)
        for part, fixed in enumerate((threshold.pending, threshold.running)):
            if fixed is not None:
                values[place + part] = -(-fixed // max(agents, 1))
    return Limits(*values)
