"""The use of running payloads: when it is measured, and what is told of output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.pilot.codec import decode, encode
from pilotage.pilot.events import Key
from pilotage.pilot.payload import RunningPayload
from pilotage.pilot.use_watch import LEAD, UseWatch
from pilotage.wire.payload_use import PayloadUse
from pilotage.wire.pilot import MB, ExchangeRequest, OfferedJob, Payload

HEARTBEAT = 30.0
STARTED = 100.0
EPOCH = 1_000_000.0
"""The wall clock of the node when its own clock is at 0."""


class Node:
    """A pilot with one payload, whose clocks the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = STARTED
        self.tasks: list[Any] = []
        self.watch = UseWatch(HEARTBEAT, cast(Any, self), lambda: self.now, lambda: EPOCH + self.now)
        self.folder = folder
        self.payload = RunningPayload(OfferedJob(7, 2, Payload("x")), STARTED)
        self.payload.work_dir = cast(Any, self)
        self.tmp = str(folder / "tmp")
        self.payload.streams.open(str(folder))
        for name in ("stdout", "stderr"):
            os.utime(folder / name, (EPOCH + STARTED, EPOCH + STARTED))
        self.running: dict[Key, RunningPayload] = {self.payload.key: self.payload}

    def submit(self, work: Any, done: Any) -> None:
        """As a pool of threads that is asked later."""
        self.tasks.append(lambda: done(work(None), None))

    def sample(self, cpu: float, memory: int) -> None:
        self.payload.cpu = cpu
        self.payload.note_memory(memory * MB, self.now)

    def write(self, name: str = "stdout", at: float | None = None) -> None:
        path = self.folder / name
        with path.open("a") as file:
            file.write("line\n")
        changed = EPOCH + (self.now if at is None else at)
        os.utime(path, (changed, changed))

    def look(self, heartbeat_at: float = 0.0) -> bool:
        """Whether a measurement began. It is carried out at once."""
        self.watch.measure(self.running, heartbeat_at or self.now)
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()
        return bool(tasks)

    def told(self, after: float) -> PayloadUse:
        self.now += after
        self.sample(self.payload.cpu, self.payload.memory // MB)
        assert self.look()
        [use] = self.watch.take()
        return use


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_payload_that_computes_and_prints(node: Node) -> None:
    node.now += 20.0
    node.write()
    node.now += 5.0
    node.sample(cpu=20.0, memory=300)
    node.sample(cpu=20.0, memory=200)
    assert node.look()
    node.now += 2.0
    [use] = node.watch.take()
    assert use == PayloadUse(7, 2, ran=25.0, cpu=20.0, busy=0.8, memory=200, peak=300, silent=5.0, age=2.0)
    assert node.watch.take() == [], "nothing is told twice"


def test_a_silent_payload_has_no_output_and_old_figures_do_not_hide_a_stop(node: Node) -> None:
    node.now += HEARTBEAT
    node.sample(cpu=10.0, memory=1)
    assert node.look()
    assert node.watch.take()[0].silent is None
    later = node.told(after=HEARTBEAT)
    assert (later.cpu, later.busy, later.silent) == (10.0, 0.0, None)


@pytest.mark.parametrize("name", ["stdout", "stderr", "results"])
def test_output_is_any_file_of_its_folder(node: Node, name: str) -> None:
    node.sample(cpu=0.1, memory=1)
    assert node.told(after=HEARTBEAT).silent is None
    node.now += 10.0
    node.write(name)
    assert node.told(after=15.0).silent == pytest.approx(15.0)
    assert node.told(after=20.0).silent == pytest.approx(35.0)


@pytest.mark.parametrize(("said", "told"), [(-5000.0, HEARTBEAT), (9000.0, 0.0)])
def test_a_wrong_clock_of_a_file_system_is_wrong_by_one_look_at_most(
    node: Node, said: float, told: float
) -> None:
    node.sample(cpu=0.1, memory=1)
    node.told(after=HEARTBEAT)
    node.write(at=said)
    assert node.told(after=HEARTBEAT).silent == pytest.approx(told)


def test_it_is_measured_before_heartbeats_and_else_once_in_the_same_time(node: Node) -> None:
    node.now += HEARTBEAT / 2
    assert not node.look(node.now + LEAD), "nothing was sampled"
    node.sample(cpu=0.1, memory=1)
    assert not node.look(node.now + 2 * LEAD)
    assert node.look(node.now + LEAD)
    assert not node.look(node.now), "twice in a heartbeat at most"
    node.now += HEARTBEAT - 1.0
    assert not node.look(node.now + HEARTBEAT)
    node.now += 1.0
    assert node.look(node.now + HEARTBEAT), "messages about jobs come all the time"


def test_a_payload_that_has_ended_is_not_told(node: Node) -> None:
    node.now += HEARTBEAT
    node.sample(cpu=0.1, memory=1)
    node.watch.measure(node.running, node.now)
    node.payload.has_ended = True
    node.tasks.pop()()
    assert node.watch.take() == []


def test_looks_leave_no_file_open(node: Node) -> None:
    before = len(os.listdir("/proc/self/fd"))
    node.sample(cpu=0.1, memory=1)
    for _ in range(3):
        node.told(after=HEARTBEAT)
    assert len(os.listdir("/proc/self/fd")) == before


def test_uses_survive_the_journey_and_old_pilots_send_none() -> None:
    request = ExchangeRequest(
        3, uses=[PayloadUse(7, 2, ran=1.5, cpu=0.5, silent=None), PayloadUse(8, 1, silent=2.0)]
    )
    assert decode(ExchangeRequest, encode(request)) == request
    assert decode(ExchangeRequest, b'{"incarnation": 3}').uses == []
