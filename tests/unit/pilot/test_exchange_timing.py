"""When a pilot asks again after a take that got nothing."""

from __future__ import annotations

import random

from pilotage.pilot.exchange_timing import ExchangeTiming
from pilotage.pilot.pilot_config import PilotConfig
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Finish, Node, Take

NODE = Node(hostname="n", processors=1)
FIRST = 0.25 * 1.2


def new_contact() -> ExchangeTiming:
    return ExchangeTiming(PilotConfig(1, NODE, lease=100, heartbeat=60, idle=50), 0.0, random.Random(1))


def pause_after(timing: ExchangeTiming, now: float, *finishes: Finish, poll: float = 0.0) -> float:
    """Send a take with these reports, have it answered with nothing; how long takes alone rest then."""
    take = Take(timing.take_number, 1, NODE)
    timing.on_sent(ExchangeRequest(1, finishes=list(finishes), take=take), now)
    timing.on_answer(ExchangeResponse(1, poll=poll), now)
    return timing.take_at - now


def test_an_idle_pilot_asks_less_and_less_often() -> None:
    timing, pauses = new_contact(), []
    for _ in range(12):
        pauses.append(pause_after(timing, timing.take_at))
    assert pauses[0] <= FIRST
    assert all(later > earlier for earlier, later in zip(pauses[:6], pauses[2:8], strict=True))
    assert max(pauses) <= 15.0 * 1.2


def test_the_last_reports_of_a_pilot_that_was_at_work_do_not_make_it_slow_to_ask() -> None:
    timing = new_contact()
    for step in range(20):
        assert pause_after(timing, 0.01 * step, Finish(step, 1)) <= FIRST
    assert timing.empty_takes


def test_a_pilot_that_has_been_idle_is_quick_again_after_work() -> None:
    timing = new_contact()
    for _ in range(8):
        pause_after(timing, timing.take_at)
    assert pause_after(timing, 1000.0, Finish(1, 1)) <= FIRST


def test_a_server_of_few_pilots_lets_idle_ones_ask_often() -> None:
    for poll, longest in ((0.08, 0.25), (4.0, 4.0), (1e9, 15.0)):
        timing, pauses = new_contact(), []
        for _ in range(12):
            pauses.append(pause_after(timing, timing.take_at, poll=poll))
        assert 0.8 * longest <= pauses[-1] <= 1.2 * longest
        assert max(pauses) <= 1.2 * longest
