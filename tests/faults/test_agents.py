"""Agents that die, sleep, come and go, with a real server: every file of a request is in exactly one mask.

Nothing is released to the pool here, so that the masks stay as the agents made them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from pilotage.agent.calls import AgentCalls
from pilotage.agent.loop import AgentLoop
from pilotage.agent.stop_flag import StopFlag
from pilotage.core.errors import Conflict, Unreachable
from pilotage.wire.agents import JoinRequest
from tests.deadlines import PATIENCE
from tests.faults.request_tables import add_request, all_split, audited, element_states, read
from tests.instance import Instance, running, until

LEASE = 3.0
POLICY = f"""
[requests]
agent_team = ""
agent_lease = {LEASE}
agent_period = 0.3
[[requests.thresholds]]
pending = 0
running = 0
"""


class Killed(BaseException):
    """The process of the agent has died."""


class Call(NamedTuple):
    """The call number `number` of this name in the life of an agent, from 0."""

    name: str
    number: int


class FaultyCalls(AgentCalls):
    """Keeps its calls, and fails at one of them: before the request is sent, or after its answer came."""

    def __init__(self, instance: Instance, fault: BaseException | None, at: Call | None, when: str) -> None:
        client = instance.client()
        super().__init__(client.url, (instance.home / "token").read_text().strip(), patience=0.0)
        self.made: list[Call] = []
        self._fault, self._at, self._when = fault, at, when

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        return (
            self._counted(name, member)
            if name in ("join", "sync", "files", "masks", "post_masks")
            else member
        )

    def _counted(self, name: str, member: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            this = Call(name, sum(call.name == name for call in self.made))
            self.made.append(this)
            if this == self._at and self._when == "before" and self._fault is not None:
                raise self._fault
            answer = member(*arguments, **named)
            if this == self._at and self._when == "after" and self._fault is not None:
                raise self._fault
            return answer

        return call


class QuietStop(StopFlag):
    """Ends the agent when it has nothing to do."""

    def wait(self, seconds: float) -> bool:
        if seconds > 0.25:  # the pause between two syncs, not one after a fault
            self.set()
        return super().wait(min(seconds, 0.02))


def run_agent(
    instance: Instance,
    team: str,
    nonce: str,
    *,
    fault: BaseException | None = None,
    at: Call | None = None,
    when: str = "",
) -> list[Call]:
    """Run an agent in this process until it has nothing to do; returns its calls."""
    with FaultyCalls(instance, fault, at, when) as calls:
        AgentLoop(
            calls,
            JoinRequest(f"agent of {team}", team, nonce),
            QuietStop(),
            monotonic=time.monotonic,
            rng=Random(1),
            first_patience=60.0,
        ).run()
        return calls.made


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, processors=1250) as made:
        made.policy += POLICY
        made.apply()
        yield made


def taken_in(instance: Instance, requests: list[int], elements: int) -> None:
    for request in requests:
        until(
            lambda request=request: sum(element_states(instance, request).values()) == elements,
            what=f"the intake of request {request}",
        )


@pytest.mark.parametrize("fault", [Killed(), Unreachable("the connection was cut")], ids=["killed", "cut"])
def test_an_agent_that_fails_at_any_call_loses_and_doubles_nothing(
    instance: Instance, fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death of the process, and a connection that is cut before or after the server has done its part."""
    monkeypatch.setattr("pilotage.agent.splitting.MASKS_PER_POST", 1)
    first = add_request(instance, 2, 5, team="whole")
    taken_in(instance, [first], 2)
    calls = run_agent(instance, "whole", "one")
    assert {"join", "sync", "files", "post_masks"} <= {call.name for call in calls}
    audited(instance, first, jobs=6)

    cases = [(at, when) for at in calls for when in ("before", "after")]
    teams = [f"{when} {at.name} {at.number}" for at, when in cases]
    requests = [add_request(instance, 2, 5, team=team) for team in teams]
    taken_in(instance, requests, 2)
    survived = []
    for (at, when), team, request in zip(cases, teams, requests, strict=True):
        if isinstance(fault, Killed):
            try:
                run_agent(instance, team, "one", fault=fault, at=at, when=when)
                survived.append(at)
            except Killed:
                pass
            run_agent(instance, team, "two")
        else:
            run_agent(instance, team, "one", fault=fault, at=at, when=when)
        all_split(instance, request, 2)
        audited(instance, request, jobs=6)
    # Only the number of syncs depends on the time that they take.
    assert {at.name for at in survived} <= {"sync"}
    assert Call("sync", 0) not in survived


def start(instance: Instance, name: str, *, posts: int = 1) -> subprocess.Popen[bytes]:
    """A process with a real agent that sends few masks at a time, so that it can be met in the middle."""
    code = (
        "import sys, pilotage.agent.splitting as splitting\n"
        f"splitting.MASKS_PER_POST = {posts}\n"
        "from pilotage.main import main\nsys.exit(main())\n"
    )
    log = (instance.home / f"{name}.log").open("ab")
    with log:
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                "agent",
                "--team",
                "far",
                "--name",
                name,
                "--home",
                str(instance.home),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE)


def jobs_of(instance: Instance, request: int, agent: str = "%") -> int:
    """Masks of a request that agents of this name have made."""
    sql = (
        "SELECT count(*) FROM element_jobs JOIN agents ON agents.id = element_jobs.agent_id"
        " WHERE request_id = ? AND agents.name LIKE ?"
    )
    return int(read(instance, lambda connection: connection.execute(sql, (request, agent)).fetchone()[0]))


def test_an_agent_that_sleeps_over_its_lease_makes_nothing_twice_when_it_wakes(instance: Instance) -> None:
    request = add_request(instance, 6, 100, team="far")
    sleeper = start(instance, "sleeper")
    other = None
    try:
        until(lambda: jobs_of(instance, request) > 20, within=PATIENCE, what="the first masks")
        os.kill(sleeper.pid, signal.SIGSTOP)
        other = start(instance, "other", posts=100)
        all_split(instance, request, 6)
        assert jobs_of(instance, request, "other") > 0
        # The server may have had a message of the sleeper to answer when the sleeper was stopped.
        before = jobs_of(instance, request, "sleeper")
        os.kill(sleeper.pid, signal.SIGCONT)
        more = add_request(instance, 2, 10, team="far")
        all_split(instance, more, 2)
        audited(instance, request, jobs=300)
        audited(instance, more, jobs=10)
        assert jobs_of(instance, request, "sleeper") == before
        assert "joining again" in until(
            lambda: (
                text if "joining again" in (text := (instance.home / "sleeper.log").read_text()) else None
            ),
            what="the sleeper's return",
        )
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
        assert stop(sleeper) == 0
        assert other is None or stop(other) == 0


def test_agents_come_and_go_under_load(instance: Instance) -> None:
    """One agent, then three, then one that dies, then one. New agents get their share of the elements at once."""
    requests = [add_request(instance, 20, 60, team="far") for _ in range(3)]
    agents = [start(instance, "one")]
    try:
        until(lambda: jobs_of(instance, requests[0]) > 50, within=PATIENCE, what="the first masks")
        agents += [start(instance, "two"), start(instance, "three")]
        for name in ("two", "three"):
            until(
                lambda name=name: sum(jobs_of(instance, r, name) for r in requests) > 20,
                within=PATIENCE,
                what=f"work for {name}",
            )
        agents[1].kill()
        agents[1].wait(PATIENCE)
        assert stop(agents[0]) == 0
        for request in requests:
            all_split(instance, request, 20)
            audited(instance, request, jobs=600)
    finally:
        for agent in agents:
            if agent.poll() is None:
                stop(agent)


def test_a_server_that_is_killed_and_restarted_keeps_its_agents(instance: Instance) -> None:
    request = add_request(instance, 10, 80, team="far")
    agent = start(instance, "one")
    try:
        for masks in (20, 120, 220):
            until(lambda masks=masks: jobs_of(instance, request) > masks, what=f"{masks} masks")
            instance.kill_server()
            instance.start()
        all_split(instance, request, 10)
        audited(instance, request, jobs=400)
        assert agent.poll() is None
        assert "the server answers again" in (instance.home / "one.log").read_text()
    finally:
        assert stop(agent) == 0


def test_a_second_process_of_the_same_name_takes_over_in_the_middle(instance: Instance) -> None:
    request = add_request(instance, 4, 100, team="far")
    first = start(instance, "same")
    until(lambda: jobs_of(instance, request) > 20, within=PATIENCE, what="the first masks")
    second = start(instance, "same", posts=50)
    try:
        assert first.wait(PATIENCE) == 5, Conflict.__name__
        all_split(instance, request, 4)
        audited(instance, request, jobs=200)
    finally:
        assert stop(second) == 0
