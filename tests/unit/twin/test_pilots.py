"""Pilots in virtual time, before a server that the test plays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pilotage.pilot.events import LEFT, SERVER_UNAVAILABLE
from pilotage.twin.pilots import BatchJob, CallFailed, PayloadRun, Reply, SimulatedPilot
from pilotage.twin.virtual_loop import VirtualLoop
from pilotage.wire.pilot import (
    EnrolRequest,
    EnrolResponse,
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Node,
    OfferedJob,
    Payload,
    Verdict,
)

LEASE = 60.0


class PlayedServer:
    """Implements `Network`: it accepts all reports, and offers `jobs` one after the other."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.jobs: list[OfferedJob] = []
        self.finishes: list[Finish] = []
        self.messages: list[Any] = []
        self.failure: CallFailed | None = None
        self.wall = 0.0

    def post(self, path: str, token: str, message: Any, reply: Reply) -> None:
        self.messages.append(message)
        self._loop.call_later(0.01, reply, self.failure or self._answer(message))

    def _answer(self, message: Any) -> Any:
        if isinstance(message, EnrolRequest):
            return EnrolResponse(1, "token", 1, "site", "ce", LEASE, 10.0, 30.0, wall=self.wall)
        assert isinstance(message, ExchangeRequest)
        accepted = [Verdict(finish.job, finish.epoch, "accepted") for finish in message.finishes]
        self.finishes += message.finishes
        offers: list[OfferedJob] = []
        if message.take is not None and self.jobs:
            offers = [self.jobs.pop(0)]
        return ExchangeResponse(
            1,
            finishes=accepted,
            releases=[Verdict(release.job, release.epoch, "accepted") for release in message.releases],
            confirms=[Verdict(held.job, held.epoch, "accepted") for held in message.confirms],
            offers=offers,
            take_number=message.take.number if message.take and offers else 0,
            lease=LEASE,
            heartbeat=10.0,
        )


class Seconds:
    """Implements `Payloads`: each job runs for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lost_seconds = 0.0

    def run_of(self, offer: OfferedJob) -> PayloadRun:
        return PayloadRun(self.seconds)

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None:
        pass

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None:
        pass

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        self.lost_seconds += seconds


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(1_700_000_000.0)
    yield loop
    loop.close()


@pytest.fixture
def server(loop: VirtualLoop) -> PlayedServer:
    return PlayedServer(loop)


def start(
    loop: VirtualLoop, server: PlayedServer, seconds: float = 100.0
) -> tuple[SimulatedPilot, list[int]]:
    exits: list[int] = []
    job = BatchJob("secret", 0, "1.0", Node("node", "x86_64", 1, 2000))
    return SimulatedPilot(job, server, Seconds(seconds), loop, random.Random(1), exits.append), exits


def run(loop: VirtualLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_pilot_runs_its_job_reports_it_and_leaves_when_idle(
    loop: VirtualLoop, server: PlayedServer
) -> None:
    server.jobs.append(OfferedJob(7, 1, Payload("/bin/true")))
    pilot, exits = start(loop, server)
    run(loop, 1000.0)
    [finish] = server.finishes
    assert (finish.job, finish.exit_code, finish.failure) == (7, 0, "")
    assert finish.wall == pytest.approx(100.0)
    assert pilot.payload == pytest.approx(100.0)
    assert exits == [LEFT]
    assert server.messages[-1].leaving == "idle"


@pytest.mark.parametrize("told", [True, False])
def test_a_pilot_that_enrols_late_ends_with_its_batch_job(
    loop: VirtualLoop, server: PlayedServer, told: bool
) -> None:
    begun = loop.time()
    job = BatchJob("secret", 0, "1.0", Node("node", "x86_64", 1, 2000), end=begun + 1000)
    if told:
        job = replace(job, start=begun)
    server.failure = CallFailed("the server is away")
    pilot = SimulatedPilot(job, server, Seconds(1.0), loop, random.Random(1), lambda code: None)
    run(loop, 300.0)
    server.failure = None
    until = begun + 900
    while pilot._machine is None and loop.time() < until:
        run(loop, 1.0)
    assert pilot._machine is not None
    assert pilot._machine.config.end == begun + 1000


def test_a_payload_that_is_longer_than_its_limit_fails_by_it(loop: VirtualLoop, server: PlayedServer) -> None:
    server.jobs.append(OfferedJob(7, 1, Payload("/bin/true", wall_time=30.0)))
    start(loop, server)
    run(loop, 1000.0)
    [finish] = server.finishes
    assert finish.failure == "limit-wall"
    assert finish.wall == pytest.approx(30.0)


def test_a_pilot_at_the_end_of_its_time_gives_its_job_back(loop: VirtualLoop, server: PlayedServer) -> None:
    server.jobs.append(OfferedJob(7, 1, Payload("/bin/true")))
    server.wall = 600.0
    pilot, exits = start(loop, server, seconds=10_000.0)
    run(loop, 700.0)
    assert not server.finishes
    assert [release.job for message in server.messages[1:] for release in message.releases] == [7]
    assert 500.0 < pilot.killed < 600.0
    assert exits == [LEFT]


def test_a_killed_pilot_says_nothing_more(loop: VirtualLoop, server: PlayedServer) -> None:
    server.jobs.append(OfferedJob(7, 1, Payload("/bin/true")))
    pilot, exits = start(loop, server)
    run(loop, 50.0)
    said = len(server.messages)
    pilot.kill()
    run(loop, 1000.0)
    assert len(server.messages) == said
    assert exits == []
    assert 49.0 < pilot.killed < 50.0


def test_a_pilot_gives_up_a_server_that_never_answers(loop: VirtualLoop, server: PlayedServer) -> None:
    server.failure = CallFailed("no server")
    _, exits = start(loop, server)
    run(loop, 10_000.0)
    assert exits == [SERVER_UNAVAILABLE]
    assert 10 < len(server.messages) < 100


def test_a_pilot_whose_secret_is_refused_ends_at_once(loop: VirtualLoop, server: PlayedServer) -> None:
    server.failure = CallFailed("unknown secret", refused=True)
    _, exits = start(loop, server)
    run(loop, 1.0)
    assert len(exits) == len(server.messages) == 1


def test_a_signal_makes_a_pilot_give_its_job_back(loop: VirtualLoop, server: PlayedServer) -> None:
    server.jobs.append(OfferedJob(7, 1, Payload("/bin/true")))
    pilot, exits = start(loop, server)
    run(loop, 50.0)
    pilot.signal("SIGTERM")
    run(loop, 30.0)
    assert exits == [LEFT]
    assert server.messages[-1].leaving == "received SIGTERM"
