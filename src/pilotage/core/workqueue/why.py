"""Why elements wait, and which single change would let how many go.

Every verdict comes from the functions that decide a pull: `eligibility.obstacle` and `SiteRoom.has_room`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from pilotage.core.sites import SiteState
from pilotage.core.workqueue.eligibility import Locations, Obstacle, SiteRules, obstacle
from pilotage.core.workqueue.pull import SiteRoom


class Hold(StrEnum):
    """A condition outside of request and data that keeps an element from a site."""

    DRAINED = "the site is drained"
    DOWN = "the site is down"
    NO_AGENT = "no live agent of the team"
    OWNER_LIMIT = "every agent of the team is at its limit of jobs"
    NO_ROOM = "the slots are filled with work of the same or a higher priority"


Verdict = Obstacle | Hold


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """A live agent of the team that does not drain."""

    name: str
    room: SiteRoom
    at_limit: bool = False
    """It has as many jobs in the pool as it may have."""


@dataclass(frozen=True, slots=True)
class PullFacts:
    """All that a pull takes into account, apart from the element."""

    rules: SiteRules
    states: Mapping[str, SiteState]
    """Every site of the policy."""
    agents: tuple[AgentFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """Available elements with one priority and one set of locations."""

    elements: int
    priority: int
    data: Locations = field(default_factory=Locations)


class SiteVerdict(NamedTuple):
    """The first condition that keeps some elements from a site; None: the next pull may take them."""

    site: str
    verdict: Verdict | None
    elements: int


class Unblock(NamedTuple):
    """A single change, and the elements without any open site that it would give one."""

    change: str
    elements: int


def first_obstacle(site: str, group: WaitingGroup, facts: PullFacts) -> Verdict | None:
    """The first condition that keeps the elements of a group from a site; None: there is none."""
    refused = obstacle(site, facts.rules, group.data)
    if refused is not None:
        return refused
    state = facts.states.get(site, SiteState.DOWN)
    if state is not SiteState.NORMAL:
        return Hold.DOWN if state is SiteState.DOWN else Hold.DRAINED
    if not facts.agents:
        return Hold.NO_AGENT
    free = [agent for agent in facts.agents if not agent.at_limit]
    if not free:
        return Hold.OWNER_LIMIT
    return None if any(agent.room.has_room(site, group.priority) for agent in free) else Hold.NO_ROOM


def verdicts(groups: Sequence[WaitingGroup], facts: PullFacts) -> list[SiteVerdict]:
    """For each site of the policy, the conditions that keep elements from it, the commonest first."""
    answer: list[SiteVerdict] = []
    for site in sorted(facts.states):
        counts: dict[Verdict | None, int] = {}
        for group in groups:
            verdict = first_obstacle(site, group, facts)
            counts[verdict] = counts.get(verdict, 0) + group.elements
        ordered = sorted(counts.items(), key=lambda entry: -entry[1])
        answer += [SiteVerdict(site, verdict, count) for verdict, count in ordered]
    return answer


def is_open(group: WaitingGroup, facts: PullFacts) -> bool:
    """Whether the next pull may take elements of a group."""
    return any(first_obstacle(site, group, facts) is None for site in facts.states)


def unblocks(groups: Sequence[WaitingGroup], facts: PullFacts, team: str, *other_teams: str) -> list[Unblock]:
    """The single changes that would let elements go which have no open site now, the most useful first."""
    closed = [group for group in groups if not is_open(group, facts)]
    useful: list[Unblock] = []
    if not closed:
        return useful
    for change, changed in _changes_for_all_sites(facts, team, other_teams):
        count = sum(group.elements for group in closed if is_open(group, changed))
        if count:
            useful.append(Unblock(change, count))
    for site in facts.states:
        for change, changed, moved in _changes_for_site(site, facts):
            count = sum(
                group.elements for group in closed if first_obstacle(site, moved(group), changed) is None
            )
            if count:
                useful.append(Unblock(change, count))
    return sorted(useful, key=lambda unblock: (-unblock.elements, unblock.change))


def _changes_for_all_sites(
    facts: PullFacts, team: str, other_teams: Sequence[str]
) -> Iterator[tuple[str, PullFacts]]:
    rules = facts.rules
    if not rules.trust_input:
        yield (
            "trust_input: read the input from elsewhere",
            replace(facts, rules=_with(rules, trust_input=True)),
        )
    if not rules.trust_pileup:
        yield (
            "trust_pileup: read the pile-up from elsewhere",
            replace(facts, rules=_with(rules, trust_pileup=True)),
        )
    slots = dict.fromkeys(facts.states, 1)
    if not facts.agents:
        started = AgentFacts("", SiteRoom(slots))
        yield f"start an agent: pilotage agent --team {team}", replace(facts, agents=(started,))
        for other in other_teams:
            change = f"the team {other}, which has agents: pilotage request assign REQUEST --team {other}"
            yield change, replace(facts, agents=(started,))
    elif all(agent.at_limit for agent in facts.agents):
        below = tuple(replace(agent, at_limit=False) for agent in facts.agents)
        yield "raise requests.max_jobs_per_owner in the policy", replace(facts, agents=below)


def _changes_for_site(
    site: str, facts: PullFacts
) -> Iterator[tuple[str, PullFacts, Callable[[WaitingGroup], WaitingGroup]]]:
    rules = facts.rules

    def same(group: WaitingGroup) -> WaitingGroup:
        return group

    def with_replica(group: WaitingGroup) -> WaitingGroup:
        data = group.data
        inputs = tuple((known or frozenset()) | {site} for known in data.inputs)
        return replace(group, data=replace(data, inputs=inputs))

    if rules.listed is not None and site not in rules.listed:
        listed = _with(rules, listed=rules.listed | {site})
        yield f"add site {site} to the request's list", replace(facts, rules=listed), same
    if site in rules.banned:
        allowed = _with(rules, banned=rules.banned - {site})
        yield f"take site {site} off the request's banned sites", replace(facts, rules=allowed), same
    if facts.states[site] is not SiteState.NORMAL:
        states = {**facts.states, site: SiteState.NORMAL}
        yield f"make the site normal: pilotage site enable {site}", replace(facts, states=states), same
    yield f"a replica of the input at site {site}", facts, with_replica
    if facts.agents:
        roomy = tuple(replace(agent, room=SiteRoom({site: 1})) for agent in facts.agents)
        yield (
            f"more slots at site {site}, or the end of work that fills them",
            replace(facts, agents=roomy),
            same,
        )


def _with(rules: SiteRules, **changes: object) -> SiteRules:
    return replace(rules, **changes)  # type: ignore[arg-type]
