"""Two servers on one PostgreSQL database: agents of both pull and post at the same time."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.workqueue.states import ElementState
from tests.unit.services.workqueue.queue_bench import PaperAgent
from tests.unit.services.workqueue.race import Servers

pytestmark = pytest.mark.slow


def agents_of(servers: Servers, count: int) -> list[PaperAgent]:
    """Agents of both servers by turns. They join at the first one, which alone gives ids to events."""
    agents = [servers.first.agent(f"agent{number}") for number in range(count)]
    for agent in agents[1::2]:
        agent.bench = servers.second
    return agents


def prepared(servers: Servers, blocks: int) -> int:
    queue = servers.first
    data = queue.dataset("data")
    for number in range(blocks):
        queue.block(data, f"b{number}", 2)
    request = queue.request(inputs=[data])
    queue.intake(request)
    return request


def test_no_element_goes_to_two_agents(servers: Servers) -> None:
    request = prepared(servers, 120)
    one, other = agents_of(servers, 2)

    def pull(agent: PaperAgent) -> list[int]:
        taken: list[int] = []
        while elements := agent.sync(7).elements:
            taken += [element.id for element in elements]
        agent.sync(0)
        return taken

    first, second = servers.together([lambda: pull(one), lambda: pull(other)])
    assert sorted(first + second) == [row.id for row in servers.first.elements_of(request)]
    assert {row.state for row in servers.first.elements_of(request)} == {ElementState.ACQUIRED}
    servers.together([one.split, other.split])
    servers.first.check_every_event_once(request)


def test_a_turn_that_two_servers_get_has_one_answer(servers: Servers) -> None:
    request = prepared(servers, 30)
    [agent] = agents_of(servers, 1)
    twin = PaperAgent(servers.second, agent.name, nonce=agent.nonce, id=agent.id)
    for _ in range(5):
        message = agent.message(3)
        answers = servers.together([lambda: agent.send(message), lambda: twin.send(message)])  # noqa: B023
        offers = [[element.id for element in answer.elements] for answer in answers]
        assert offers[0] == offers[1]
        agent.held.update({element.id: element for element in answers[0].elements})
        agent.number += 1
    agent.sync(0)
    agent.split()
    assert sum(row.state is ElementState.RUNNING for row in servers.first.elements_of(request)) == 15


def test_masks_posted_by_way_of_both_servers_do_not_overlap(servers: Servers) -> None:
    request = prepared(servers, 1)
    [agent] = agents_of(servers, 1)
    twin = PaperAgent(servers.second, agent.name, nonce=agent.nonce, id=agent.id)
    [element] = agent.sync().elements
    agent.post(element, [Mask((FileRange(1, 0, 10),), events=10)])
    twin.post(element, [Mask((FileRange(1, 10, 10),), events=10)])
    for agent_of_a_server in (agent, twin):
        with pytest.raises(InvalidInput, match="job for these events already"):
            agent_of_a_server.post(element, [Mask((FileRange(1, 5, 10),), events=10)])
    same = [Mask((FileRange(2, 0, 100),), events=100), Mask((FileRange(1, 20, 80),), events=80)]
    answers = servers.together([lambda: agent.post(element, same), lambda: twin.post(element, same)])
    assert sorted(answer.made for answer in answers) == [0, 2]
    assert not agent.post(element, [], last=True, total=4).superseded
    assert not twin.post(element, [], last=True, total=4).superseded
    servers.first.check_every_event_once(request)
