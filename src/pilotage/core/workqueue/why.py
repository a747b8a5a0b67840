"""Why elements and made jobs wait, and which single change would let how many go.

Every verdict comes from the functions that decide: of a pull `eligibility.obstacle` and `SiteRoom.has_room`, of a
release `usable_sites` and the loads of agents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Generic, NamedTuple, TypeVar

from pilotage.core.sites import SiteState
from pilotage.core.workqueue.eligibility import Locations, Obstacle, SiteRules, obstacle
from pilotage.core.workqueue.pull import SiteRoom
from pilotage.core.workqueue.release import LimitCheck, ReleaseRefusal


class Hold(StrEnum):
    """A condition outside of request and data that keeps work from a site."""

    AVOIDED = "the jobs failed there, and are tried at another site"
    DRAINED = "the site is drained"
    DOWN = "the site is down"
    DRAINED_BY_POLICY = "the policy drains the site"
    BANNED_BY_POLICY = "the policy bans the site"
    NO_AGENT = "no live agent of the team"
    OWNER_LIMIT = "every agent of the team is at its limit of jobs"
    NO_ROOM = "the slots are filled with work of the same or a higher priority"


class OwnerLimit(NamedTuple):
    """An agent has as many jobs in the pool as it may have."""

    jobs: int
    limit: int

    def __str__(self) -> str:
        return f"the agent is at its limit of jobs: {self.jobs:,} of {self.limit:,}"


Verdict = Obstacle | Hold | OwnerLimit | LimitCheck

_ORDER: Sequence[object] = (*Obstacle, *Hold, OwnerLimit, *ReleaseRefusal)
"""The conditions in the order in which they are checked."""


def closeness(verdict: Verdict) -> int:
    """The place of a condition in the order of the checks. A higher one means that the site comes closer."""
    if isinstance(verdict, LimitCheck):
        return _ORDER.index(verdict.refusal)
    return _ORDER.index(OwnerLimit if isinstance(verdict, OwnerLimit) else verdict)


class Effort(IntEnum):
    """Among changes with the same effect, the lesser effort is named first."""

    ENABLE_SITE = 0
    START_AGENT = 1
    CHANGE_REQUEST = 2
    CHANGE_POLICY = 3
    MORE_SLOTS = 4
    MOVE_DATA = 5


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Available elements, or made jobs, with one priority and one set of locations."""

    number: int
    priority: int
    data: Locations = field(default_factory=Locations)


class SiteVerdict(NamedTuple):
    """The first condition that keeps some work from a site; None: there is none."""

    site: str
    verdict: Verdict | None
    number: int


class ElementUnblock(NamedTuple):
    """A single change, and how much of the work without any open site it would let go."""

    change: str
    number: int


Group = TypeVar("Group", bound=WaitingGroup)


@dataclass(frozen=True, slots=True)
class ChangedFacts(Generic[Group]):
    """The facts after a single change."""

    effort: Effort
    text: str
    facts: SiteFacts[Group]


@dataclass(frozen=True, slots=True)
class SiteFacts(ABC, Generic[Group]):
    """All that decides at which sites waiting work may go on, apart from the work."""

    rules: SiteRules
    states: Mapping[str, SiteState]
    """Every site of the policy."""
    closed_by_policy: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Sites that `site enable` does not open."""

    @abstractmethod
    def verdict(self, site: str, group: Group) -> Verdict | None:
        """The first condition that keeps a group from a site; None: there is none."""

    def effect(self, site: str, group: Group) -> int:
        """How much of a group may go on at a site."""
        return group.number if self.verdict(site, group) is None else 0

    def closure(self, site: str) -> Hold:
        """Why a site whose state is not normal takes no work."""
        is_down = self.states.get(site, SiteState.DOWN) is SiteState.DOWN
        if site in self.closed_by_policy:
            return Hold.BANNED_BY_POLICY if is_down else Hold.DRAINED_BY_POLICY
        return Hold.DOWN if is_down else Hold.DRAINED

    @abstractmethod
    def changes_for_all_sites(self) -> Iterator[ChangedFacts[Group]]: ...

    @abstractmethod
    def changes_for_site(self, site: str) -> Iterator[ChangedFacts[Group]]:
        """Changes at one site. Its state, the lists of the request and its data have changes of their own."""

    def is_open(self, group: Group) -> bool:
        """Whether a group may go on at any site."""
        return any(self.verdict(site, group) is None for site in self.states)


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """A live agent of the team that does not drain."""

    name: str
    room: SiteRoom
    at_limit: bool = False
    """It has as many jobs in the pool as it may have."""


@dataclass(frozen=True, slots=True)
class PullFacts(SiteFacts[WaitingGroup]):
    """All that a pull takes into account, apart from the element."""

    agents: tuple[AgentFacts, ...] = ()
    team: str = ""
    other_teams: tuple[str, ...] = ()
    """Teams that have agents."""

    def verdict(self, site: str, group: WaitingGroup) -> Verdict | None:
        refused = obstacle(site, self.rules, group.data)
        if refused is not None:
            return refused
        if self.states.get(site) is not SiteState.NORMAL:
            return self.closure(site)
        if not self.agents:
            return Hold.NO_AGENT
        free = [agent for agent in self.agents if not agent.at_limit]
        if not free:
            return Hold.OWNER_LIMIT
        return None if any(agent.room.has_room(site, group.priority) for agent in free) else Hold.NO_ROOM

    def changes_for_all_sites(self) -> Iterator[ChangedFacts[WaitingGroup]]:
        if not self.agents:
            started = replace(self, agents=(AgentFacts("", SiteRoom(dict.fromkeys(self.states, 1))),))
            yield ChangedFacts(
                Effort.START_AGENT, f"start an agent: pilotage agent --team {self.team}", started
            )
            for other in self.other_teams:
                text = f"the team {other}, which has agents: pilotage request assign REQUEST --team {other}"
                yield ChangedFacts(Effort.CHANGE_REQUEST, text, started)
        elif all(agent.at_limit for agent in self.agents):
            below = tuple(replace(agent, at_limit=False) for agent in self.agents)
            yield ChangedFacts(Effort.CHANGE_POLICY, RAISE_OWNER_LIMIT, replace(self, agents=below))

    def changes_for_site(self, site: str) -> Iterator[ChangedFacts[WaitingGroup]]:
        if self.agents:
            roomy = tuple(replace(agent, room=SiteRoom({site: 1})) for agent in self.agents)
            text = f"more slots at site {site}, or the end of work that fills them"
            yield ChangedFacts(Effort.MORE_SLOTS, text, replace(self, agents=roomy))


RAISE_OWNER_LIMIT = "raise requests.max_jobs_per_owner in the policy"


def verdicts(groups: Sequence[Group], facts: SiteFacts[Group]) -> list[SiteVerdict]:
    """For each site of the policy, the conditions that keep work from it, the commonest first."""
    answer: list[SiteVerdict] = []
    for site in sorted(facts.states):
        counts: dict[Verdict | None, int] = {}
        for group in groups:
            verdict = facts.verdict(site, group)
            counts[verdict] = counts.get(verdict, 0) + group.number
        ordered = sorted(counts.items(), key=lambda entry: -entry[1])
        answer += [SiteVerdict(site, verdict, count) for verdict, count in ordered]
    return answer


def unblocks(groups: Sequence[Group], facts: SiteFacts[Group]) -> list[ElementUnblock]:
    """The single changes that would let work go which has no open site now, by their effect, then their effort."""
    closed = [group for group in groups if not facts.is_open(group)]
    useful: list[tuple[int, Effort, str]] = []
    if not closed:
        return []
    for change in (*_trust_changes(facts), *facts.changes_for_all_sites()):
        number = sum(
            min(group.number, sum(change.facts.effect(site, group) for site in facts.states))
            for group in closed
        )
        useful.append((-number, change.effort, change.text))
    for site in facts.states:
        for change in (*_changes_of_place(site, facts), *facts.changes_for_site(site)):
            number = sum(change.facts.effect(site, group) for group in closed)
            useful.append((-number, change.effort, change.text))
        number = sum(facts.effect(site, _with_replica(group, site)) for group in closed)
        useful.append((-number, Effort.MOVE_DATA, f"a replica of the input at site {site}"))
    return [ElementUnblock(text, -number) for number, _, text in sorted(useful) if number]


def _with_replica(group: Group, site: str) -> Group:
    inputs = tuple((known or frozenset()) | {site} for known in group.data.inputs)
    return replace(group, data=replace(group.data, inputs=inputs))


def _trust_changes(facts: SiteFacts[Group]) -> Iterator[ChangedFacts[Group]]:
    rules = facts.rules
    for name, noun, is_set in (
        ("trust_input", "input", rules.trust_input),
        ("trust_pileup", "pile-up", rules.trust_pileup),
    ):
        if not is_set:
            text = f"{name}: read the {noun} from elsewhere"
            changed = replace(rules, **{name: True})  # type: ignore[arg-type]
            yield ChangedFacts(Effort.CHANGE_REQUEST, text, replace(facts, rules=changed))


def _changes_of_place(site: str, facts: SiteFacts[Group]) -> Iterator[ChangedFacts[Group]]:
    """Changes of the site's state, and of the request's lists."""
    rules = facts.rules
    if facts.states[site] is not SiteState.NORMAL:
        states = {**facts.states, site: SiteState.NORMAL}
        in_policy = site in facts.closed_by_policy
        effort = Effort.CHANGE_POLICY if in_policy else Effort.ENABLE_SITE
        yield ChangedFacts(effort, opening(site, in_policy=in_policy), replace(facts, states=states))
    if rules.listed is not None and site not in rules.listed:
        sites = rules.listed | {site}
        text = f"add site {site} to the request's list: {_SET_SITES} --sites {_names(sites)}"
        listed = replace(facts, rules=replace(rules, listed=sites))
        yield ChangedFacts(Effort.CHANGE_REQUEST, text, listed)
    if site in rules.banned:
        sites = rules.banned - {site}
        text = f"take site {site} off the request's banned sites: {_SET_SITES} --banned-sites {_names(sites)}"
        allowed = replace(facts, rules=replace(rules, banned=sites))
        yield ChangedFacts(Effort.CHANGE_REQUEST, text, allowed)


_SET_SITES = "pilotage request sites REQUEST"


def _names(sites: frozenset[str]) -> str:
    """The sites as a value of an option."""
    return ",".join(sorted(sites)) or "''"


def opening(site: str, *, in_policy: bool) -> str:
    """How a site that is down or drained gets work again."""
    if in_policy:
        return f"take banned and draining off sites.{site} in the policy"
    return f"make the site normal: pilotage site enable {site}"
