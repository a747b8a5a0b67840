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
    first_obstacle,
    unblocks,
    verdicts,
)

NORMAL = {"A": SiteState.NORMAL, "B": SiteState.NORMAL}


def agent(slots: int = 10, held: int = 0, priority: int = 5, *, at_limit: bool = False) -> AgentFacts:
    room = SiteRoom(dict.fromkeys(NORMAL, slots))
    for site in NORMAL:
        room.add(site, priority, held)
    return AgentFacts("a1", room, at_limit)


FACTS = PullFacts(SiteRules(), NORMAL, (agent(),))
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
    assert first_obstacle("A", AT_A, facts) is verdict


def test_unknown_is_not_nowhere() -> None:
    unknown = replace(AT_A, data=Locations((None,)))
    assert first_obstacle("A", unknown, FACTS) is Obstacle.INPUT_UNKNOWN
    nowhere = replace(AT_A, data=Locations((frozenset(),)))
    assert first_obstacle("A", nowhere, FACTS) is Obstacle.NO_INPUT


def test_each_site_has_its_verdicts_the_commonest_first() -> None:
    both = WaitingGroup(1, 5, Locations((frozenset({"A", "B"}),)))
    assert verdicts([AT_A, both], FACTS) == [
        SiteVerdict("A", None, 4),
        SiteVerdict("B", Obstacle.NO_INPUT, 3),
        SiteVerdict("B", None, 1),
    ]


def told(facts: PullFacts, *groups: WaitingGroup) -> dict[str, int]:
    return {unblock.change: unblock.elements for unblock in unblocks(groups or [AT_A], facts, "home")}


def test_open_elements_need_no_change() -> None:
    assert told(FACTS) == {}


def test_an_agent_is_missing() -> None:
    alone = replace(FACTS, agents=())
    assert told(alone) == {"start an agent: pilotage agent --team home": 3}
    assert [unblock.change for unblock in unblocks([AT_A], alone, "hmoe", "home")] == [
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
    changes = unblocks([readable], drained, "home")
    assert "trust_input: read the input from elsewhere" in [unblock.change for unblock in changes]


def test_the_lists_of_the_request() -> None:
    elsewhere = replace(FACTS, rules=SiteRules(listed=frozenset({"B"}), banned=frozenset({"A"})))
    changes = told(elsewhere)
    assert changes == {"a replica of the input at site B": 3}
    listed = replace(FACTS, rules=SiteRules(listed=frozenset({"B"})))
    assert told(listed)["add site A to the request's list"] == 3


def test_filled_slots_and_the_limit_of_the_owner() -> None:
    full = told(replace(FACTS, agents=(agent(held=10),)))
    assert full == {"more slots at site A, or the end of work that fills them": 3}
    limited = told(replace(FACTS, agents=(agent(at_limit=True),)))
    assert limited == {"raise requests.max_jobs_per_owner in the policy": 3}


def test_only_elements_without_an_open_site_are_counted() -> None:
    at_b = WaitingGroup(7, 5, Locations((frozenset({"B"}),)))
    drained = replace(FACTS, states={"A": SiteState.DRAIN, "B": SiteState.NORMAL})
    assert told(drained, AT_A, at_b)["make the site normal: pilotage site enable A"] == 3
