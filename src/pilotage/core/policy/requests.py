"""The table `requests` of the policy: how requests become jobs, how fast, and by which agents."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Final

from pilotage.core.policy.table import Table
from pilotage.core.setting import YEAR, Setting

MAX_REQUEST_PRIORITY: Final = 999_999
MAX_BANDS: Final = 9
"""One less than the values of UserPriority that a band may have, 1 to 10."""


class Threshold(Table, frozen=True):
    """Fixed numbers in place of the thresholds that follow from the slots of a site."""

    site: Annotated[str, Setting("the site where the threshold applies; empty: each site")] = ""
    type: Annotated[
        str, Setting("the type of step, such as Processing or Merge; empty: all jobs of the site together")
    ] = ""
    pending: Annotated[
        int | None, Setting("maximum number of jobs that wait in the pool; absent: from the slots", 0, 10**9)
    ] = None
    running: Annotated[
        int | None, Setting("maximum number of jobs that run; absent: from the slots", 0, 10**9)
    ] = None


class Requests(Table, frozen=True):
    priority_bands: Annotated[
        tuple[int, ...],
        Setting(
            "lowest request priorities of the UserPriorities 2, 3, ...; the jobs of a request below the first have"
            " UserPriority 1 in the pool",
            1,
            MAX_REQUEST_PRIORITY,
        ),
    ] = (10_000, 20_000, 50_000, 80_000, 110_000, 150_000, 200_000, 300_000, 500_000)
    queue_depth: Annotated[
        float, Setting("an agent holds work for a site up to its slots times this number", 1e-3, 1000)
    ] = 1.0
    site_floor: Annotated[
        int, Setting("slots of a site that each agent may count on, however many agents share it", 1, 10**6)
    ] = 1
    pending_fraction: Annotated[
        float, Setting("pending threshold of a site, as a fraction of its slots", 0, 1000)
    ] = 0.5
    overflow: Annotated[
        float,
        Setting(
            "part of the pending threshold by which jobs of a higher priority than all active ones may exceed it",
            0,
            1000,
        ),
    ] = 0.2
    max_jobs_per_owner: Annotated[
        int, Setting("unfinished jobs in the pool that count as the full load of one agent", 1, 10**9)
    ] = 100_000
    owner_limit_factor: Annotated[
        float, Setting("part of max_jobs_per_owner at which an agent gets no more work", 0, 1000)
    ] = 0.75
    elements_per_pull: Annotated[int, Setting("elements that one pull offers at most", 1, 10_000)] = 200
    intake_slice: Annotated[
        int, Setting("elements of a request that one transaction creates at most", 1, 100_000)
    ] = 1000
    confirm_jobs: Annotated[
        int, Setting("a request that would make as many jobs needs a confirmation (`--yes`)", 1, 10**12)
    ] = 1_000_000
    max_requests_per_owner: Annotated[int, Setting("unfinished requests of an owner at most", 0, 10**6)] = (
        10_000
    )
    agent_lease: Annotated[
        float, Setting("seconds for which a silent agent keeps its elements", 1e-3, YEAR)
    ] = 300.0
    agent_period: Annotated[
        float, Setting("seconds between two reports of an agent; at most a third of agent_lease", 1e-3, YEAR)
    ] = 5.0
    agent_team: Annotated[
        str, Setting("team of the agent that `pilotage up` starts; empty: it starts none")
    ] = "home"
    thresholds: tuple[Threshold, ...] = ()

    @property
    def owner_limit(self) -> int:
        """Unfinished pool jobs of an agent at which it gets no more work and its jobs are not released."""
        return int(self.max_jobs_per_owner * self.owner_limit_factor)

    def user_priority(self, priority: int) -> int:
        """The UserPriority in the pool of the jobs of a request with this priority."""
        return 1 + bisect_right(self.priority_bands, priority)

    def threshold(self, site: str, type_: str) -> Threshold:
        """The fixed numbers for a site and a type; an entry of the site stands above one of all sites."""
        pending: int | None = None
        running: int | None = None
        for wanted in (site, ""):
            for entry in self.thresholds:
                if (entry.site, entry.type) == (wanted, type_):
                    pending = entry.pending if pending is None else pending
                    running = entry.running if running is None else running
        return Threshold(site=site, type=type_, pending=pending, running=running)
