"""The unfinished pool jobs of a team's agents against the limits of sites. The release and `why` read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pilotage.core.jobs.request_types import PROCESSING
from pilotage.core.workqueue.release import AgentLoads, Limits, ReleaseRules, SiteLoad, limits_of, no_limits
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
    together: dict[str, SiteLoad],
) -> AgentLoads:
    """The pool jobs of a team, of all jobs of `counts`. `live`: its agents, which share the slots of each site.

    `together`: the jobs of all teams.
    """
    agents, rules = len(live), release_rules(work_queue)
    slots, settings = work_queue.pool.site_slots(), work_queue.pool.policy.requests

    def limits(site: str, job_type: str) -> Limits:
        """A part for each agent, rounded up so that none is left without: `maxima` bound them together."""
        computed = limits_of(slots.get(site, 0), agents, job_type, rules)
        return _in_place(computed, _fixed(site, job_type), lambda most: -(-most // max(agents, 1)))

    def maxima(site: str, job_type: str) -> Limits:
        return _in_place(no_limits(site, job_type), _fixed(site, job_type), lambda most: most)

    def _fixed(site: str, job_type: str) -> tuple[int | None, ...]:
        of_site, of_type = settings.threshold(site, ""), settings.threshold(site, job_type)
        return of_site.pending, of_site.running, of_type.pending, of_type.running

    loads = AgentLoads(limits, rules, maxima, together)
    for count in counts:
        request, step = requests.get(count.request), steps.get((count.request, count.step))
        if request is not None and request.team == team:
            kind = step.type if step else PROCESSING
            number = {"running" if count.running else "pending": count.jobs}
            agent = counted_agent(count.agent, live)
            loads.add(agent, count.site, kind, request.priority, **number)
    return loads


def _in_place(limits: Limits, fixed: Sequence[int | None], part: Callable[[int], int]) -> Limits:
    """The limits with the fixed numbers of the policy in place of others."""
    return Limits(*(old if new is None else part(new) for old, new in zip(limits, fixed, strict=True)))


def loads_together(
    counts: Sequence[ReleasedCount],
    requests: Mapping[int, QueuedRequest],
    steps: Mapping[tuple[int, int], QueuedStep],
) -> dict[str, SiteLoad]:
    """The pool jobs of all agents, by site."""
    together: dict[str, SiteLoad] = {}
    for count in counts:
        request, step = requests.get(count.request), steps.get((count.request, count.step))
        if request is not None:
            number = {"running" if count.running else "pending": count.jobs}
            kind = step.type if step else PROCESSING
            together.setdefault(count.site, SiteLoad()).add(kind, request.priority, **number)
    return together
