"""Agents that lose answers, repeat messages, freeze, die and start again; transactions that fail at any statement.

Whatever happens, each event of each request gets one job, and the moves of each element are a legal chain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pilotage.core.errors import PilotageError, Superseded
from pilotage.core.splitting.mask import Mask
from pilotage.core.workqueue.states import ELEMENT_STATES, ElementState
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import OfferedElement, SyncRequest
from tests.unit.services.workqueue.queue_bench import EVENTS, PaperAgent, QueueBench

STEPS = 110


class StatementFailed(Exception):
    """Raised instead of carrying out a statement."""


class FailingConnection:
    """A connection whose statement number `left` fails."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.left = -1
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._connection, name)
        if not name.startswith(("execute", "fetch")):
            return value

        def checked(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.failed += 1
                raise StatementFailed
            return value(*arguments)

        return checked


class Careless:
    """An agent that sends what comes to its mind."""

    def __init__(self, queue: QueueBench, name: str, rng: Random) -> None:
        self.queue, self.name, self.rng = queue, name, rng
        self.process = 0
        self.agent = queue.agent(name, nonce="0")
        self.last: SyncRequest | None = None
        self.masks: dict[tuple[int, int], list[Mask]] = {}

    def step(self) -> None:
        actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (4, self.sync),
            (2, self.lose_answer),
            (2, self.repeat),
            (6, self.post),
            (1, self.give_back),
            (1, self.restart),
        )
        [action] = self.rng.choices(
            [action for _, action in actions], weights=[weight for weight, _ in actions]
        )
        try:
            action()
        except Superseded:
            self.agent.join()
            self.agent.held.clear()

    def sync(self) -> None:
        self.last = self.agent.message(self.rng.randint(0, 3))
        self.agent.sync(self.last.want)

    def lose_answer(self) -> None:
        self.last = self.agent.message(self.rng.randint(0, 3))
        self.agent.send(self.last)

    def repeat(self) -> None:
        """A message that was delayed, or sent twice."""
        if self.last is not None:
            self.agent.send(self.last)

    def post(self) -> None:
        if not self.agent.held:
            return
        element = self.rng.choice(list(self.agent.held.values()))
        masks = self._masks(element)
        if self.rng.random() < 0.5:
            part = self.rng.sample(masks, self.rng.randint(0, len(masks)))
            answer = self.agent.post(element, part)
        else:
            answer = self.agent.post(element, masks, last=True)
            if not answer.superseded and self.rng.random() < 0.7:
                del self.agent.held[element.id]
        if answer.superseded:
            del self.agent.held[element.id]

    def _masks(self, element: OfferedElement) -> list[Mask]:
        """The masks as this agent has computed them when it got the element; they may be outdated."""
        if (element.id, element.epoch) not in self.masks:
            try:
                self.masks[element.id, element.epoch] = self.agent.masks_of(element)
            except AssertionError:
                return []
        return self.masks[element.id, element.epoch]

    def give_back(self) -> None:
        if self.agent.held:
            self.agent.give_back(self.rng.choice(list(self.agent.held)))

    def restart(self) -> None:
        """The process has died; its successor knows nothing."""
        self.process += 1
        self.agent = PaperAgent(self.queue, self.name, nonce=str(self.process))
        self.agent.join()


def prepared(queue: QueueBench) -> list[int]:
    data = queue.dataset("data", is_open=True)
    for number in range(3):
        queue.block(data, f"b{number}", 5, events=30)
    requests = [
        queue.request(inputs=[data], open_until=queue.now + 10**6),
        queue.request(queue.step(splitting=EVENTS), inputs=[data]),
        queue.request(queue.step(splitting=EVENTS, events=75, start_policy="MonteCarlo")),
    ]
    for request in requests:
        queue.intake(request)
    return requests


def finish(queue: QueueBench, requests: list[int]) -> None:
    """A careful agent does the rest, once the leases of all others are over."""
    queue.bench.now += 1000
    queue.expire()
    agent = queue.agent("careful")
    while agent.sync().elements:
        agent.split()
    for request in requests:
        queue.check_every_event_once(request)
        assert {row.state for row in queue.elements_of(request)} == {ElementState.RUNNING}
        check_moves(queue, request)


def check_moves(queue: QueueBench, request: int) -> None:
    states: dict[int, str] = {}
    for old, new, ids in queue.moves(request):
        for element in ids:
            assert states.get(element, "Available") == old
            ELEMENT_STATES.check(ElementState(old), ElementState(new))
            states[element] = new
    assert Counter(states.values()) == Counter(row.state for row in queue.elements_of(request))


@pytest.mark.parametrize("seed", range(4))
def test_each_event_gets_one_job(queue: QueueBench, seed: int) -> None:
    rng = Random(seed)
    requests = prepared(queue)
    careless = [Careless(queue, name, rng) for name in ("one", "two", "three")]
    for number in range(STEPS):
        rng.choice(careless).step()
        if rng.random() < 0.05:
            # Long enough for some leases to end, and for their agents to come back later.
            queue.bench.now += rng.choice((100, 310))
            queue.expire()
        if rng.random() < 0.04:
            queue.reopen()
        if number == STEPS // 2:
            queue.block(1, "late", 3, events=30)
            queue.intake(requests[0])
    finish(queue, requests)


@pytest.mark.parametrize("seed", range(4))
def test_transactions_that_fail_anywhere_leave_nothing_behind(queue: QueueBench, seed: int) -> None:
    """Each request is carried out again after it has failed at one of its statements, the memory being kept."""
    rng = Random(seed)
    requests = prepared(queue)
    failing = FailingConnection(queue.bench.connection)
    queue.bench.writer._connection = failing
    carried_out = queue.bench.do

    def do(request: Callable[[Transaction], Any]) -> Any:
        if rng.random() < 0.5:
            failing.left = rng.randint(1, 12)
            try:
                return carried_out(request)
            except StatementFailed:
                pass
            finally:
                failing.left = -1
        return carried_out(request)

    queue.bench.do = do  # type: ignore[method-assign]
    careless = [Careless(queue, name, rng) for name in ("one", "two")]
    for _ in range(STEPS // 2):
        rng.choice(careless).step()
    queue.bench.do = carried_out  # type: ignore[method-assign]
    assert failing.failed > 10
    queue.bench.writer._connection = queue.bench.connection
    finish(queue, requests)


@pytest.mark.parametrize("dies", [False, True])
def test_intake_that_fails_or_dies_at_each_statement(queue: QueueBench, dies: bool) -> None:
    data = queue.dataset("data")
    for number in range(5):
        queue.block(data, f"b{number}")
    request = queue.request(inputs=[data])
    failed = 0
    for statement in range(1, 40):
        failing = FailingConnection(queue.bench.connection)
        queue.bench.writer._connection = failing
        failing.left = statement
        try:
            queue.intake(request, 2)
        except StatementFailed:
            failed += 1
            if dies:
                queue.reopen()
        else:
            break
    else:
        raise AssertionError("it never came to its end")
    queue.bench.writer._connection = queue.bench.connection
    assert failed > 5
    assert [row.block_ids for row in queue.elements_of(request)] == [[number] for number in range(1, 6)]
    details = queue.sql("SELECT detail FROM request_events WHERE kind = 'intake'")
    assert sum(json.loads(row[0])["elements"] for row in details) == 5


def test_a_mistake_of_an_agent_does_not_stop_the_others(queue: QueueBench) -> None:
    requests = prepared(queue)
    agent = queue.agent("wrong")
    for element in agent.sync().elements:
        with pytest.raises(PilotageError):
            agent.post(element, [Mask((), 10**9, 5), *agent.masks_of(element)], last=True)
    assert all(queue.masks(request) == [] for request in requests)
    finish(queue, requests)
