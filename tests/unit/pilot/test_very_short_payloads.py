"""Very short payloads one after another, in virtual time: few exchanges, and a node that is never left without work."""

from __future__ import annotations

import random
from itertools import pairwise

from pilotage.pilot.events import Event, ExchangeAnswered, PayloadEnded, Send, Start
from pilotage.pilot.job_rate import COALESCE_SECONDS, EXCHANGES_AHEAD, MAX_COALESCE_SECONDS, JobRate
from pilotage.pilot.machine import Machine
from pilotage.pilot.pilot_config import PilotConfig
from pilotage.wire.pilot import (
    EnrolResponse,
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    OfferedJob,
    Payload,
    Verdict,
)

STEP = 0.0001
"""No two events of the pilot come closer to each other."""


class Life:
    """A pilot of one processor with payloads of `length` seconds, and a server that takes `latency` to answer."""

    def __init__(self, jobs: int, length: float, latency: float, ahead: int) -> None:
        self.jobs, self.length, self.latency = jobs, length, latency
        config = PilotConfig(1, Node(hostname="n", processors=1), 100.0, 10.0, 50.0, ahead=ahead)
        self.machine = Machine(config, 0.0, random.Random(1))
        self.given = 0
        self.sent: list[float] = []
        self.started: list[float] = []
        self.finished = 0
        self.coming: list[tuple[float, Event]] = []

    def live(self) -> None:
        now = 0.0
        while self.finished < self.jobs:
            due = [event for at, event in self.coming if at <= now]
            self.coming = [one for one in self.coming if one[0] > now]
            for action in self.machine.handle(now, *due):
                if isinstance(action, Send):
                    self.sent.append(now)
                    self.coming.append((now + self.latency, ExchangeAnswered(self.answer(action.request))))
                elif isinstance(action, Start):
                    self.started.append(now)
                    ended = PayloadEnded(Finish(action.offer.job, action.offer.epoch, exit_code=0))
                    self.coming.append((now + self.length, ended))
            now = max(now + STEP, min([self.machine.next_at(now), *(at for at, _ in self.coming)]))

    def answer(self, request: ExchangeRequest) -> ExchangeResponse:
        self.finished += len(request.finishes)
        response = ExchangeResponse(1, lease=100.0, heartbeat=10.0)
        response.finishes = [Verdict(one.job, one.epoch, "accepted") for one in request.finishes]
        response.confirms = [Verdict(one.job, one.epoch, "accepted") for one in request.confirms]
        if request.take:
            for _ in range(min(request.take.count, self.jobs - self.given)):
                self.given += 1
                response.offers.append(OfferedJob(self.given, 1, Payload("/bin/true")))
            response.take_number = request.take.number
        return response

    def longest_pause(self) -> float:
        """Between two starts, once the pilot knows that its payloads are short."""
        settled = self.started[100:]
        return max(later - earlier for earlier, later in pairwise(settled))


def test_the_node_is_never_left_without_work_and_exchanges_are_few() -> None:
    life = Life(2_000, 0.0015, 0.01, EnrolResponse(1, "", 1, "s", "c", 100.0, 10.0, 50.0).ahead)
    life.live()
    assert life.longest_pause() < 0.0015 + 2 * STEP
    assert len(life.sent) < 2_000 * 0.0015 / COALESCE_SECONDS + 20


def test_exchanges_are_fewer_the_more_work_is_held() -> None:
    life = Life(2_000, 0.004, 0.01, EnrolResponse(1, "", 1, "s", "c", 100.0, 10.0, 50.0).ahead)
    life.live()
    assert life.longest_pause() < 0.004 + 2 * STEP
    assert len(life.sent) < 2_000 * 0.004 / (1.5 * COALESCE_SECONDS) + 20


def test_an_interval_lasts_a_third_of_the_work_that_is_held() -> None:
    rate = JobRate()
    assert rate.coalesce_seconds(100, 1) == COALESCE_SECONDS
    rate.add(0.002)
    rate.add(0.002)
    assert rate.coalesce_seconds(0, 1) == COALESCE_SECONDS
    assert rate.coalesce_seconds(90, 1) == 0.002 * 90 / EXCHANGES_AHEAD
    assert rate.coalesce_seconds(10_000, 1) == MAX_COALESCE_SECONDS
