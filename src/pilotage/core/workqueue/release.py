"""The release of made jobs into the pool: their order, and the limits of sites and types.

Jobs go by the priority of their type, then of their request, then by id. Each counts at one site until it ends. A
site refuses a job at the first limit that is reached: pending, type pending, all, type all. Jobs of a request with
equal sites and agent form a *group*. The groups are merged by a heap, so a group without room costs one look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush, heapreplace
from math import ceil, floor
from random import Random
from typing import NamedTuple

from pilotage.core.jobs.request_types import PROCESSING, TYPE_PRIORITIES
from pilotage.core.sites import SiteState

WITHOUT_OVERFLOW = frozenset({"Merge", "Cleanup", "LogCollect"})
"""Types that never exceed the pending limits, also with a high priority."""

INPUT_OUTPUT_TYPES = frozenset(TYPE_PRIORITIES) - {PROCESSING}
"""Types that load the storage of a site more than its processors: only a part of its slots is for each."""


class ReleaseRefusal(StrEnum):
    """The first limit that keeps a job from a site, in the order of the checks."""

    PENDING = "the site has enough waiting jobs"
    TYPE_PENDING = "the site has enough waiting jobs of this type"
    ALL = "the site has enough jobs"
    TYPE_ALL = "the site has enough jobs of this type"


@dataclass(frozen=True, slots=True)
class ReleaseRules:
    """From the policy."""

    pending_fraction: float = 0.5
    """Pending slots of a site, as a part of its slots."""
    pending_floor: int = 20
    """Jobs that may wait for a site, at least."""
    processing_part: float = 0.9
    input_output_part: float = 0.5
    """The part of a site's limits for jobs of one such type."""
    overflow: float = 0.2
    """The part of the pending limits that jobs of the highest priority may add."""
    max_jobs_per_owner: int = 100_000
    owner_limit_factor: float = 0.75

    @property
    def owner_limit(self) -> float:
        return self.max_jobs_per_owner * self.owner_limit_factor


class Limits(NamedTuple):
    """The limits of one site for jobs of one type."""

    pending: int
    running: int
    type_pending: int
    type_running: int


def limits_of(available: int, agents: int, job_type: str, rules: ReleaseRules) -> Limits:
    """The limits of a site with `available` slots, for one of `agents` agents that share it."""
    agents = max(agents, 1)
    part = rules.input_output_part if job_type in INPUT_OUTPUT_TYPES else rules.processing_part
    pending = max(int(available * rules.pending_fraction / agents), rules.pending_floor)
    running = max(int(available / agents), 1)
    return Limits(pending, running, max(int(pending * part), 1), max(int(running * part), 1))


@dataclass(slots=True)
class TypeLoad:
    """Unfinished pool jobs of one type at a site."""

    pending: int = 0
    running: int = 0
    priorities: dict[int, int] = field(default_factory=dict)
    """The number of these jobs by the priority of their request."""


@dataclass(slots=True)
class SiteLoad:
    """Unfinished pool jobs of one agent that count at a site."""

    pending: int = 0
    running: int = 0
    types: dict[str, TypeLoad] = field(default_factory=dict)

    def add(self, job_type: str, priority: int, *, pending: int = 0, running: int = 0) -> None:
        load = self.types.get(job_type)
        if load is None:
            load = self.types[job_type] = TypeLoad()
        self.pending += pending
        self.running += running
        load.pending += pending
        load.running += running
        load.priorities[priority] = load.priorities.get(priority, 0) + pending + running


def is_above(priority: int, active: Iterable[int]) -> bool:
    """Whether a request's priority is above that of all active jobs of other priorities, if there are any.

    Jobs of the same priority count on neither side. So the overflow is the same in one pass or in many.
    """
    others = [level for level in active if level != priority]
    return bool(others) and priority > max(others)


def with_overflow(pending: int, overflow: float) -> int:
    """A pending limit for jobs that may exceed it by a part, rounded down.

    >>> [with_overflow(pending, 0.2) for pending in (3, 4, 5, 15, 35)]
    [3, 4, 6, 18, 42]
    """
    # 35 * 1.2 is 42.0 and 15 * 1.1 is 16.500000000000004: errors of the last digit must take no job away.
    return floor(pending * (1 + overflow) + 1e-9)


class LimitCheck(NamedTuple):
    """A limit of a site, and the jobs that count against it."""

    refusal: ReleaseRefusal
    jobs: int
    limit: int

    def __str__(self) -> str:
        return f"{self.refusal}: {self.jobs:,} of {self.limit:,}"


def checks(
    load: SiteLoad, limits: Limits, job_type: str, priority: int, overflow: float = 0.2
) -> tuple[LimitCheck, ...]:
    """The limits for a job, with the jobs that count against each, in the order of the checks."""
    of_type = load.types.get(job_type) or TypeLoad()
    pending, type_pending = limits.pending, limits.type_pending
    if job_type not in WITHOUT_OVERFLOW and is_above(priority, of_type.priorities):
        pending, type_pending = with_overflow(pending, overflow), with_overflow(type_pending, overflow)
    return (
        LimitCheck(ReleaseRefusal.PENDING, load.pending, pending),
        LimitCheck(ReleaseRefusal.TYPE_PENDING, of_type.pending, type_pending),
        LimitCheck(ReleaseRefusal.ALL, load.pending + load.running, pending + limits.running),
        LimitCheck(
            ReleaseRefusal.TYPE_ALL, of_type.pending + of_type.running, type_pending + limits.type_running
        ),
    )


def reached_limit(
    load: SiteLoad, limits: Limits, job_type: str, priority: int, overflow: float = 0.2
) -> LimitCheck | None:
    """The first limit that a further job would exceed; None: the site takes it."""
    for check in checks(load, limits, job_type, priority, overflow):
        if check.jobs >= check.limit:
            return check
    return None


def usable_sites(eligible: Iterable[str], uses: Mapping[str, SiteState]) -> frozenset[str]:
    """The sites for which a job is released. A draining site only if there is no other, one that is down never."""
    alive = {site for site in eligible if uses.get(site, SiteState.NORMAL) is not SiteState.DOWN}
    normal = {site for site in alive if uses.get(site, SiteState.NORMAL) is SiteState.NORMAL}
    return frozenset(normal or alive)


@dataclass(slots=True)
class ReleaseGroup:
    """Made jobs that differ in nothing that decides about their release, but for their ids."""

    job_type: str
    priority: int
    agent: int
    sites: frozenset[str]
    """The sites where they may run, and for which jobs are released."""
    jobs: Iterator[int]
    """Their ids, ascending. Nothing is read of a group for which no site has room."""


class JobRelease(NamedTuple):
    """A job to be released, the place of its group, and the site at which it counts."""

    job: int
    group: int
    site: str


LimitsOf = Callable[[str, str], Limits]
"""(site, type) → the limits for one agent."""


UNLIMITED = 10**12


def no_limits(_site: str, _type: str) -> Limits:
    return Limits(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED)


@dataclass(slots=True)
class AgentLoads:
    """The unfinished pool jobs of each agent, by site."""

    limits: LimitsOf
    rules: ReleaseRules
    maxima: LimitsOf = no_limits
    """Limits for all agents together."""
    together: dict[str, SiteLoad] = field(default_factory=dict)
    """The jobs of all agents of all teams, by site. The passes of one release share it."""
    loads: dict[tuple[int, str], SiteLoad] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)
    """All unfinished pool jobs of each agent, also of sites that are not known any more."""
    _limits: dict[tuple[str, str], tuple[Limits, Limits]] = field(default_factory=dict, init=False)

    def add(
        self, agent: int, site: str, job_type: str, priority: int, *, pending: int = 0, running: int = 0
    ) -> None:
        self.totals[agent] = self.totals.get(agent, 0) + pending + running
        self._load(agent, site).add(job_type, priority, pending=pending, running=running)

    def release(self, agent: int, site: str, job_type: str, priority: int) -> None:
        """Add a job that is released now."""
        self.add(agent, site, job_type, priority, pending=1)
        self.together.setdefault(site, SiteLoad()).add(job_type, priority, pending=1)

    def has_room(self, agent: int) -> bool:
        """Whether the agent is below the limit of an owner. Nothing passes it, also with a high priority."""
        return self.totals.get(agent, 0) < self.rules.owner_limit

    def reached_limit(self, agent: int, site: str, job_type: str, priority: int) -> LimitCheck | None:
        """The first limit of the site that a further job would exceed; None: the site takes it."""
        for check in self._checks(agent, site, job_type, priority):
            if check.jobs >= check.limit:
                return check
        return None

    def room(self, agent: int, site: str, job_type: str, priority: int) -> int:
        """The number of further jobs that the site and the limit of an owner take."""
        of_site = self._checks(agent, site, job_type, priority)
        of_owner = ceil(self.rules.owner_limit) - self.totals.get(agent, 0)
        return max(0, min(of_owner, *(check.limit - check.jobs for check in of_site)))

    def _checks(self, agent: int, site: str, job_type: str, priority: int) -> tuple[LimitCheck, ...]:
        """The limits of the agent, then the limits of all agents together."""
        own, maxima = self._limits_of(site, job_type)
        rest = job_type, priority, self.rules.overflow
        together = self.together.get(site) or SiteLoad()
        return *checks(self._load(agent, site), own, *rest), *checks(together, maxima, *rest)

    def _limits_of(self, site: str, job_type: str) -> tuple[Limits, Limits]:
        limits = self._limits.get((site, job_type))
        if limits is None:
            limits = self.limits(site, job_type), self.maxima(site, job_type)
            self._limits[site, job_type] = limits
        return limits

    def _load(self, agent: int, site: str) -> SiteLoad:
        load = self.loads.get((agent, site))
        if load is None:
            load = self.loads[agent, site] = SiteLoad()
        return load


_Head = tuple[int, int, int, int, ReleaseGroup, list[str]]
"""In the order of the release: type and request priority with the sign changed, id, and the place of the group."""


class ReleasePass:
    """One pass over all groups, taken in parts. The loads grow with each job that it releases."""

    def __init__(self, loads: AgentLoads, rng: Random) -> None:
        self._loads, self._rng = loads, rng
        self._heap: list[_Head] = []

    def add(self, place: int, group: ReleaseGroup) -> None:
        """Add a group, with a `place` that no other group has."""
        sites = self._open_sites(group)
        first = next(group.jobs, None) if sites else None
        if first is not None:
            order = -TYPE_PRIORITIES.get(group.job_type, 0), -group.priority
            heappush(self._heap, (*order, first, place, group, sites))

    def take(self, limit: int) -> list[JobRelease]:
        """At most `limit` jobs more; fewer only at the end of the pass."""
        heap, released = self._heap, list[JobRelease]()
        while heap and len(released) < limit:
            type_order, order, job, place, group, sites = heap[0]
            site = self._draw_site(group, sites)
            if site is None:
                heappop(heap)
                continue
            self._loads.release(group.agent, site, group.job_type, group.priority)
            released.append(JobRelease(job, place, site))
            following = next(group.jobs, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (type_order, order, following, place, group, sites))
        return released

    def _open_sites(self, group: ReleaseGroup) -> list[str]:
        if not self._loads.has_room(group.agent):
            return []
        return [site for site in sorted(group.sites) if self._takes(group, site)]

    def _takes(self, group: ReleaseGroup, site: str) -> bool:
        return self._loads.reached_limit(group.agent, site, group.job_type, group.priority) is None

    def _draw_site(self, group: ReleaseGroup, sites: list[str]) -> str | None:
        """A random site that takes the job; None: no site does. Drops the sites that refuse it from `sites`."""
        if not self._loads.has_room(group.agent):
            return None
        while sites:
            place = int(self._rng.random() * len(sites))
            site = sites[place]
            if self._takes(group, site):
                return site
            sites[place] = sites[-1]
            sites.pop()
        return None
