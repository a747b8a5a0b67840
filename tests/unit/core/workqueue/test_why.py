"""Why elements wait: the order of conditions, and the single changes that help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.datasets.facts import ELSEWHERE
from pilotage.core.sites import SiteState
from pilotage.core.workqueue.eligibility import Locations, Obstacle, SiteRules
from pilotage.core.workqueue.pull import SiteRoom
from pilotage.core.workqueue.why import (
    AgentFacts,
    Hold,
    PullFacts,
    SiteVerdict,
    Verdict,
    WaitingGroup,
    unblocks,
    verdicts,
)

NORMAL = {"A": SiteState.NORMAL, "B": SiteState.NORMAL}


def agent(slots: int = 10, held: int = 0, priority: int = 5, *, at_limit: bool = False) -> AgentFacts:
    room = SiteRoom(dict.fromkeys(NORMAL, slots))
    for site in NORMAL:
        room.add(site, priority, held)
    return AgentFacts("a1", room, at_limit)


FACTS = PullFacts(SiteRules(), NORMAL, (agent(),), "home")
AT_A = WaitingGroup(3, 5, Locations((frozenset({"A"}),)))


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (FACTS, None),
        (replace(FACTS, rules=SiteRules(listed=frozenset({"B"}))), Obstacle.NOT_LISTED),
        (replace(FACTS, rules=SiteRules(banned=frozenset({"A"}))), Obstacle.BANNED),
        (replace(FACTS, states={"A": SiteState.DRAIN}), Hold.DRAINED),
        (replace(FACTS, states={"A": SiteState.DOWN}), Hold.DOWN),
        (replace(FACTS, states={}), Hold.DOWN),
        (replace(FACTS, agents=()), Hold.NO_AGENT),
        (replace(FACTS, agents=(agent(at_limit=True),)), Hold.OWNER_LIMIT),
        (replace(FACTS, agents=(agent(held=10),)), Hold.NO_ROOM),
        (replace(FACTS, agents=(agent(held=10), agent(held=9))), None),
        (replace(FACTS, agents=(agent(held=10, priority=4),)), None),
        (replace(FACTS, agents=(agent(at_limit=True), agent(held=10))), Hold.NO_ROOM),
    ],
)
def test_the_first_condition_is_told(facts: PullFacts, verdict: Verdict | None) -> None:
    assert facts.verdict("A", AT_A) is verdict


def test_unknown_is_not_nowhere() -> None:
    unknown = replace(AT_A, data=Locations((None,)))
    assert FACTS.verdict("A", unknown) is Obstacle.INPUT_UNKNOWN
    nowhere = replace(AT_A, data=Locations((frozenset(),)))
    assert FACTS.verdict("A", nowhere) is Obstacle.NO_INPUT


def test_each_site_has_its_verdicts_the_commonest_first() -> None:
    both = WaitingGroup(1, 5, Locations((frozenset({"A", "B"}),)))
    assert verdicts([AT_A, both], FACTS) == [
        SiteVerdict("A", None, 4),
        SiteVerdict("B", Obstacle.NO_INPUT, 3),
        SiteVerdict("B", None, 1),
    ]


def told(facts: PullFacts, *groups: WaitingGroup) -> dict[str, int]:
    return {unblock.change: unblock.number for unblock in unblocks(groups or [AT_A], facts)}


def test_open_elements_need_no_change() -> None:
    assert told(FACTS) == {}


def test_an_agent_is_missing() -> None:
    alone = replace(FACTS, agents=())
    assert told(alone) == {"start an agent: pilotage agent --team home": 3}
    misspelt = replace(alone, team="hmoe", other_teams=("home",))
    assert [unblock.change for unblock in unblocks([AT_A], misspelt)] == [
        "start an agent: pilotage agent --team hmoe",
        "the team home, which has agents: pilotage request assign REQUEST --team home",
    ]


def test_a_drained_site_is_enabled_or_the_data_read_elsewhere() -> None:
    drained = replace(FACTS, states={"A": SiteState.DRAIN, "B": SiteState.NORMAL})
    assert told(drained) == {
        "make the site normal: pilotage site enable A": 3,
        "a replica of the input at site B": 3,
    }, "its files have no address"
    readable = WaitingGroup(7, 3, Locations((frozenset({"A", ELSEWHERE}),)))
    changes = unblocks([readable], drained)
    assert "trust_input: read the input from elsewhere" in [unblock.change for unblock in changes]


def test_the_lists_of_the_request() -> None:
    elsewhere = replace(FACTS, rules=SiteRules(listed=frozenset({"B"}), banned=frozenset({"A"})))
    changes = told(elsewhere)
    assert changes == {"a replica of the input at site B": 3}
    listed = replace(FACTS, rules=SiteRules(listed=frozenset({"B"})))
    assert told(listed)["add site A to the request's list: pilotage request sites REQUEST --sites A,B"] == 3


def test_changes_with_the_same_effect_are_ordered_by_effort() -> None:
    """The site that is down comes first, also where all others lack the data."""
    states = {"A": SiteState.NORMAL, "B": SiteState.NORMAL, "Z": SiteState.DOWN}
    at_z = WaitingGroup(3, 5, Locations((frozenset({"Z"}),)))
    both = WaitingGroup(2, 5, Locations((frozenset(),)))
    anywhere = AgentFacts("a1", SiteRoom(dict.fromkeys(states, 10)))
    down = replace(FACTS, states=states, agents=(anywhere,))
    assert unblocks([at_z], down) == [
        ("make the site normal: pilotage site enable Z", 3),
        ("a replica of the input at site A", 3),
        ("a replica of the input at site B", 3),
    ]
    assert unblocks([at_z, both], down)[0] == ("a replica of the input at site A", 5), "effect goes first"
    banned = replace(down, closed_by_policy=frozenset({"Z"}))
    assert banned.verdict("Z", at_z) is Hold.BANNED_BY_POLICY
    assert ("take banned and draining off sites.Z in the policy", 3) in unblocks([at_z], banned)


def test_filled_slots_and_the_limit_of_the_owner() -> None:
    full = told(replace(FACTS, agents=(agent(held=10),)))
    assert full == {"more slots at site A, or the end of work that fills them": 3}
    limited = told(replace(FACTS, agents=(agent(at_limit=True),)))
    assert limited == {"raise requests.max_jobs_per_owner in the policy": 3}


def test_only_elements_without_an_open_site_are_counted() -> None:
    at_b = WaitingGroup(7, 5, Locations((frozenset({"B"}),)))
    drained = replace(FACTS, states={"A": SiteState.DRAIN, "B": SiteState.NORMAL})
    assert told(drained, AT_A, at_b)["make the site normal: pilotage site enable A"] == 3
