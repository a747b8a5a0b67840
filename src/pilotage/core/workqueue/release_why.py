"""Why made jobs are not released, by the rules of the release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from pilotage.core.sites import SiteState
from pilotage.core.workqueue.eligibility import obstacle
from pilotage.core.workqueue.release import UNLIMITED, AgentLoads, no_limits, usable_sites
from pilotage.core.workqueue.why import (
    RAISE_OWNER_LIMIT,
    ChangedFacts,
    Effort,
    Hold,
    OwnerLimit,
    SiteFacts,
    Verdict,
    WaitingGroup,
)


@dataclass(frozen=True, slots=True)
class MadeJobs(WaitingGroup):
    """Made jobs that differ in nothing that decides about their release."""

    job_type: str = ""
    agent: int = 0
    avoided: frozenset[str] = frozenset()
    """The sites where they are not tried again."""


@dataclass(frozen=True, slots=True)
class ReleaseFacts(SiteFacts[MadeJobs]):
    """All that a release takes into account, apart from the jobs."""

    loads: AgentLoads

    def verdict(self, site: str, group: MadeJobs) -> Verdict | None:
        refused = obstacle(site, self.rules, group.data)
        if refused is not None:
            return refused
        if site in group.avoided:
            return Hold.AVOIDED
        state = self.states.get(site, SiteState.NORMAL)
        if state is not SiteState.NORMAL and site not in usable_sites(self._eligible(group), self.states):
            return self.closure(site)
        if not self.loads.has_room(group.agent):
            most = ceil(self.loads.rules.owner_limit)
            return OwnerLimit(self.loads.totals.get(group.agent, 0), most)
        return self.loads.reached_limit(group.agent, site, group.job_type, group.priority)

    def effect(self, site: str, group: MadeJobs) -> int:
        if self.verdict(site, group) is not None:
            return 0
        return min(group.number, self.loads.room(group.agent, site, group.job_type, group.priority))

    def changes_for_all_sites(self) -> Iterator[ChangedFacts[MadeJobs]]:
        rules = replace(self.loads.rules, max_jobs_per_owner=UNLIMITED)
        loads = replace(self.loads, rules=rules)
        yield ChangedFacts(Effort.CHANGE_POLICY, RAISE_OWNER_LIMIT, replace(self, loads=loads))

    def changes_for_site(self, site: str) -> Iterator[ChangedFacts[MadeJobs]]:
        loads = replace(self.loads, limits=no_limits, maxima=no_limits)
        text = f"more slots at site {site} or higher [[requests.thresholds]], or the end of jobs there"
        yield ChangedFacts(Effort.MORE_SLOTS, text, replace(self, loads=loads))

    def _eligible(self, group: MadeJobs) -> set[str]:
        return {
            site
            for site in self.states
            if site not in group.avoided and obstacle(site, self.rules, group.data) is None
        }
