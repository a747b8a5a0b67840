"""A pilot whose lease is over and that reaches no server: it stays with its results, or leaves with its payloads."""

from __future__ import annotations

import random

import pytest

from pilotage.pilot.events import (
    RESULTS_LOST,
    Action,
    ExchangeAnswered,
    ExchangeFailed,
    Kill,
    Leave,
    PayloadEnded,
    Send,
    Start,
    Tick,
)
from pilotage.pilot.machine import SIGNAL_GRACE, Machine
from pilotage.pilot.pilot_config import PilotConfig
from pilotage.wire.pilot import (
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    OfferedJob,
    Payload,
    Verdict,
)

LEASE = 100.0


def with_payloads(*, leaves: bool) -> Machine:
    """A pilot at the instant 0 that runs the jobs 1 and 2."""
    node = Node(hostname="n", processors=2)
    machine = Machine(PilotConfig(1, node, LEASE, 10.0, 50.0, leaves_cut_off=leaves), 0.0, random.Random(1))
    offers = [OfferedJob(job, 1, Payload("/bin/true")) for job in (1, 2)]
    take = request_of(machine.handle(0.0, Tick())).take
    assert take is not None
    actions = machine.handle(0.0, answer(offers=offers, take_number=take.number))
    confirms = [Verdict(job, 1, "accepted") for job in (1, 2)]
    assert len(request_of(actions).confirms) == 2
    started = machine.handle(0.0, answer(confirms=confirms))
    assert sum(isinstance(action, Start) for action in started) == 2
    return machine


def answer(**told: object) -> ExchangeAnswered:
    return ExchangeAnswered(ExchangeResponse(1, lease=LEASE, heartbeat=10.0, **told))  # type: ignore[arg-type]


def request_of(actions: list[Action]) -> ExchangeRequest:
    [request] = [action.request for action in actions if isinstance(action, Send)]
    return request


def without_a_server(machine: Machine, until: float) -> list[tuple[float, Action]]:
    """Every exchange fails and no payload ends by itself. The first job ends at 50; killed ones end at once."""
    now, said = 0.0, list[tuple[float, Action]]()
    coming = [PayloadEnded(Finish(1, 1, exit_code=0))]
    while now < until and not any(isinstance(action, Leave) for _, action in said):
        events = [coming.pop() if now >= 50.0 and coming else Tick()]
        actions = machine.handle(now, *events)
        while actions:
            said += [(now, action) for action in actions]
            back = [
                ExchangeFailed("no route") if isinstance(action, Send) else PayloadEnded(killed(action))
                for action in actions
                if isinstance(action, Send | Kill)
            ]
            actions = machine.handle(now, *back) if back else []
        now = max(now + 0.1, min(machine.next_at(now), 50.0 if coming else until))
    return said


def killed(action: Action) -> Finish:
    assert isinstance(action, Kill)
    return Finish(*action.key, failure="killed")


def test_a_pilot_stays_with_its_payloads_and_results() -> None:
    said = without_a_server(with_payloads(leaves=False), 50 * LEASE)
    assert not [action for _, action in said if isinstance(action, Kill | Leave)]


def test_a_pilot_of_a_plain_machine_leaves_with_its_lease() -> None:
    said = without_a_server(with_payloads(leaves=True), 50 * LEASE)
    [(killed_at, kill)] = [(at, action) for at, action in said if isinstance(action, Kill)]
    [(left_at, leave)] = [(at, action) for at, action in said if isinstance(action, Leave)]
    assert isinstance(kill, Kill)
    assert kill.key == (2, 1)
    assert 0.9 * LEASE <= killed_at < LEASE
    assert killed_at <= left_at <= killed_at + SIGNAL_GRACE + 1
    assert isinstance(leave, Leave)
    assert leave.code == RESULTS_LOST, "the result of the first job was kept as long as the lease"


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_slept_longer_than_its_lease_asks_its_server_first(answers: bool) -> None:
    machine = with_payloads(leaves=True)
    actions = machine.handle(10 * LEASE, Tick())
    assert request_of(actions)
    assert not [action for action in actions if isinstance(action, Kill)]
    actions = machine.handle(10 * LEASE + 1, answer() if answers else ExchangeFailed("no route"))
    assert [isinstance(action, Kill) for action in actions].count(True) == (0 if answers else 2)
