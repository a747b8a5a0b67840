"""Locations on a real server: work follows its data, also work that an agent already holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilotage.agent.calls import AgentCalls
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Conflict
from pilotage.wire.agents import ElementReference, JoinRequest, SyncRequest, SyncResponse
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

HERE = Replica("here", "/data")
REQUEST: dict[str, Any] = {
    "name": "follow",
    "team": "far",
    "input": "raw",
    "program": {"executable": "/bin/true"},
    "splitting": {"algorithm": "FileBased", "files_per_job": 2},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, processors=64) as instance:
        instance.policy += "[sites.there]\n"
        instance.apply()
        yield instance


class Agent:
    """An agent of team `far` that holds elements and never splits them."""

    def __init__(self, server: Instance) -> None:
        self.calls = AgentCalls.connect(home=server.home)
        self.id = self.calls.join(JoinRequest("one", "far", "nonce")).agent
        self.number = 0
        self.held: dict[int, int] = {}

    def sync(self, *, want: int = 0) -> SyncResponse:
        self.number += want > 0
        holding = [ElementReference(*pair) for pair in self.held.items()]
        request = SyncRequest("nonce", self.number, want, {"here": 64, "there": 64}, holding)
        answer = self.calls.sync(self.id, request)
        if want:
            self.held |= {offer.id: offer.epoch for offer in answer.elements}
        for element in answer.stop:
            del self.held[element]
        return answer


def states(server: Instance) -> dict[str, str]:
    """The state of the element of each block, by the name of the block."""
    with closing(sqlite3.connect(server.home / "pilotage.db", timeout=PATIENCE)) as connection:
        sql = "SELECT b.name, e.state FROM elements e JOIN blocks b ON e.blocks = '[' || b.id || ']'"
        return dict(connection.execute(sql).fetchall())


def test_held_work_goes_back_with_its_last_place_and_comes_again_with_a_new_one(server: Instance) -> None:
    client = server.client()
    client.create_dataset("raw")
    blocks = [
        BlockEntry(name, (FileEntry(f"{name}/1"), FileEntry(f"{name}/2")), (HERE,)) for name in ("a", "b")
    ]
    client.add_to_dataset("raw", blocks)
    client.close_dataset("raw")
    request = client.submit_request(REQUEST).request.id
    until(lambda: len(states(server)) == 2, what="the elements")
    agent = Agent(server)

    def pull() -> bool:
        agent.sync(want=10)
        return len(agent.held) == 2

    until(pull, what="the pull")
    agent.sync()
    assert states(server) == {"a": "Acquired", "b": "Acquired"}
    with pytest.raises(Conflict, match=f"request {request}"):
        client.remove_dataset("raw")

    client.change_replicas("raw", block="a", remove=["here"])
    until(lambda: agent.sync().stop, what="the word that an element has lost its place")
    assert states(server) == {"a": "Available", "b": "Acquired"}
    agent.sync(want=10)
    assert len(agent.held) == 1

    client.change_replicas("raw", block="b", forget=True)
    assert agent.sync().stop == [], "an unknown location is not an empty one"
    client.change_replicas("raw", block="a", add=[Replica("there", "/elsewhere")])

    def pull_again() -> bool:
        agent.sync(want=10)
        return len(agent.held) == 2

    until(pull_again, what="the element at its new site")
    agent.calls.close()


def test_an_open_data_set_feeds_an_open_request(server: Instance) -> None:
    client = server.client()
    client.create_dataset("raw")
    client.add_to_dataset("raw", [BlockEntry("run1", (FileEntry("1"),), (HERE,))])
    client.submit_request({**REQUEST, "open_for": "1 h"})
    until(lambda: set(states(server)) == {"run1"}, what="the first element")
    client.add_to_dataset("raw", [BlockEntry("run1", (FileEntry("1"), FileEntry("2")), (HERE,))])
    until(lambda: set(states(server)) == {"run1", "run1#2"}, what="the element of the further block")
