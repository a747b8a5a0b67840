"""The decisions of an agent: elements to pull, to split now, and to give back."""

from __future__ import annotations

from pilotage.agent.machine import MOST_HELD, AgentMachine
from pilotage.wire.agents import (
    MAX_PULL,
    OfferedElement,
    SiteOfAgent,
    Splitting,
    SyncRequest,
    SyncResponse,
)

SPLITTING = Splitting("FileBased", {"files_per_job": 1})


def offer(
    number: int, *, priority: int = 10, site: str = "here", jobs: int = 5, epoch: int = 1
) -> OfferedElement:
    return OfferedElement(number, epoch, 1, "step", "Processing", priority, site, jobs, SPLITTING)


def site(
    name: str = "here", slots: int = 10, running: int = 0, state: str = "normal", **waiting: int
) -> SiteOfAgent:
    """`p10=3`: three waiting jobs of priority 10."""
    return SiteOfAgent(name, state, slots, running, [[int(key[1:]), jobs] for key, jobs in waiting.items()])


SYNCED, PERIOD = 100.0, 5.0
"""When the last sync was sent, and the seconds to the next one if there are no news."""


def answer(
    machine: AgentMachine,
    *offers: OfferedElement,
    sites: tuple[SiteOfAgent, ...] = (site(),),
    stop: tuple[int, ...] = (),
    drain: bool = False,
) -> SyncRequest:
    """One sync; returns the request."""
    request = machine.sync_request()
    machine.take_answer(
        request,
        SyncResponse(request.number, 300.0, PERIOD, list(offers), list(stop), list(sites), drain=drain),
        SYNCED,
    )
    return request


def split_in_turn(machine: AgentMachine) -> list[int]:
    """The elements that are split until none may be."""
    order: list[int] = []
    while (following := machine.next_element()) is not None:
        order.append(following.id)
        machine.finish(following, following.jobs)
    return order


def test_the_slots_of_normal_sites_are_sent_once_they_are_known() -> None:
    machine = AgentMachine("n")
    assert machine.next_sync_at() < SYNCED
    assert (
        answer(machine, sites=(site("a", 4), site("b", 9, state="drain"), site("c", state="down"))).slots
        == {}
    )
    assert machine.next_sync_at() < SYNCED, "the sites are known now, so that the agent can pull"
    assert answer(machine, sites=(site("a", 4),)).slots == {"a": 4}
    assert machine.next_sync_at() == SYNCED + PERIOD


def test_a_number_is_used_until_its_answer_came() -> None:
    machine = AgentMachine("n")
    first = machine.sync_request()
    assert machine.sync_request().number == first.number
    answer(machine)
    assert machine.sync_request().number == first.number + 1


def test_new_elements_are_confirmed_at_once_and_kept_in_every_sync() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1), offer(2))
    assert machine.next_sync_at() < SYNCED
    confirmed = answer(machine)
    assert [(item.element, item.epoch) for item in confirmed.holding] == [(1, 1), (2, 1)]
    assert machine.next_sync_at() == SYNCED + PERIOD


def test_elements_are_split_by_priority_then_age() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(3), offer(1), offer(2, priority=20), sites=(site(slots=1000),))
    assert split_in_turn(machine) == [2, 1, 3]


def test_one_element_may_exceed_the_slots_and_no_second_one() -> None:
    machine = AgentMachine("n")
    answer(machine, *(offer(n, jobs=7) for n in range(1, 6)), sites=(site(slots=10),))
    assert split_in_turn(machine) == [1, 2]


def test_running_jobs_take_slots_and_waiting_jobs_too() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1), sites=(site(slots=10, running=7, p10=3),))
    assert split_in_turn(machine) == []
    answer(machine, sites=(site(slots=10, running=7, p10=2),))
    assert split_in_turn(machine) == [1]


def test_jobs_of_a_lower_priority_do_not_keep_higher_ones_away() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1, priority=10), offer(2, priority=20), sites=(site(slots=10, p10=5000),))
    assert split_in_turn(machine) == [2]


def test_a_site_that_drains_still_gets_the_jobs_of_held_elements() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1))
    answer(machine, sites=(site(state="drain"),))
    assert split_in_turn(machine) == [1]


def test_an_element_of_a_site_that_is_down_or_gone_goes_back() -> None:
    machine = AgentMachine("n")
    both = (site("a"), site("b"))
    answer(machine, offer(1, site="a"), offer(2, site="b"), sites=both)
    answer(machine, sites=(site("a", state="down"),))
    assert machine.held == ()
    assert machine.next_sync_at() < SYNCED
    sent = machine.sync_request()
    assert [(item.element, item.reason) for item in sent.releases] == [
        (1, "site a is down"),
        (2, "no site b"),
    ]
    answer(machine)
    assert not machine.sync_request().releases


def test_elements_beyond_a_smaller_share_of_a_site_go_back_the_least_urgent_first() -> None:
    machine = AgentMachine("n")
    answer(machine, *(offer(n, jobs=5) for n in range(1, 7)), offer(9, priority=20), sites=(site(slots=40),))
    answer(machine, sites=(site(slots=40, p10=5),))
    assert len(machine.held) == 7, "its share is the same"
    answer(machine, sites=(site(slots=20, p10=5),))
    sent = machine.sync_request()
    assert [item.element for item in sent.releases] == [3, 4, 5, 6]
    assert {item.reason for item in sent.releases} == {"other agents share site here"}
    assert sorted(item.element for item in sent.holding) == [1, 2, 9]
    answer(machine, sites=(site(slots=20, p10=500),))
    assert len(machine.held) == 3, "more waiting jobs alone send nothing back"


def test_a_stopped_element_is_dropped_and_may_come_again_with_a_new_epoch() -> None:
    machine = AgentMachine("n")
    old = offer(1)
    answer(machine, old)
    answer(machine, offer(1, epoch=2), stop=(1,))
    assert not machine.holds(old)
    assert [(item.element, item.epoch) for item in machine.sync_request().holding] == [(1, 2)]
    machine.drop(old)
    assert machine.held == (1,), "the end of the old offer ends the new one"


def test_a_drained_agent_pulls_nothing_and_gives_everything_back() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1))
    answer(machine, drain=True)
    sent = answer(machine, drain=True)
    assert (sent.want, [item.element for item in sent.releases], sent.draining) == (0, [1], False)
    assert machine.next_element() is None
    answer(machine)
    assert machine.sync_request().want == MAX_PULL


def test_the_last_message_of_an_agent_has_a_number_of_its_own() -> None:
    machine = AgentMachine("n")
    answer(machine, offer(1))
    before = machine.number
    machine.drain()
    sent = machine.sync_request()
    assert (sent.draining, sent.want, sent.number) == (True, 0, before + 1)
    assert [item.element for item in sent.releases] == [1]


def test_the_number_of_held_elements_is_bounded() -> None:
    machine = AgentMachine("n")
    answer(machine, *(offer(n, priority=0) for n in range(1, MOST_HELD - 49)), sites=(site(slots=0),))
    assert machine.sync_request().want == 50
    answer(machine, *(offer(n) for n in range(MOST_HELD, MOST_HELD + 100)), sites=(site(slots=0),))
    assert machine.sync_request().want == 0
