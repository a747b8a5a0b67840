"""The batch systems of a history and their pilots, with all that goes wrong there without anybody's command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.submission import NativeState
from pilotage.twin.batch.system import BatchSystemSettings, TwinBatchSystem
from pilotage.twin.batch.tasks import BatchPilotStart, BatchTask, StartedPilot
from pilotage.twin.chance import Streams
from pilotage.twin.idle_takes import IdleTakes
from pilotage.twin.pilots import BatchJob, CallFailed, Reply, SimulatedPilot
from pilotage.wire.pilot import ExchangeResponse, Node
from tests.simulation.broken import need
from tests.simulation.faults import Fault
from tests.simulation.network import Link, Network
from tests.simulation.node_clock import NodeClock
from tests.simulation.payloads import PayloadBooks
from tests.simulation.policy import CES, CeFacts
from tests.simulation.processes import Outside, SimulationLoop

Item = TypeVar("Item")

MEMORY = 16_000
SAVED = 60.0
"""Seconds between two states that a controller keeps for a cold start."""
PAST = 150.0
SKEW = 100.0
"""Seconds by which the clock of a node may be wrong."""
DRIFT = 0.03
"""Part of its seconds by which it may be too fast or too slow."""
ASKED = 10.0
"""Seconds after which an idle pilot asks again."""


@dataclass(slots=True, eq=False)
class PilotProcess:
    """The process of one pilot. Implements `StartedPilot`."""

    ce: CeFacts
    stamp: str
    task: BatchTask
    began: float
    left: Callable[[int], None]
    clock: Callable[[], float]
    payloads: PayloadBooks
    pilot: SimulatedPilot | None = None
    link: Link | None = None
    node_clock: NodeClock | None = None
    alive: bool = True
    ended: float | None = None
    exit_code: int | None = None
    """None: it was killed, or runs."""

    def signal(self, name: str) -> None:
        if self.pilot is not None and self.alive:
            self.pilot.signal(name)

    def hear(self, reply: Reply, given: Any) -> None:
        """Give an answer to the pilot, which then runs nothing that it was told to stop."""
        assert self.node_clock is not None
        self.node_clock.call_soon(self._hear, reply, given)

    def _hear(self, reply: Reply, given: Any) -> None:
        reply(given)
        if isinstance(given, CallFailed) and given.superseded and self.pilot is not None:
            left = self.payloads.running_on(self.pilot)
            need(not left, f"pilot {self.stamp} is superseded, and goes on with {left[:3]}")
        if isinstance(given, ExchangeResponse) and given.stop and self.pilot is not None:
            running = {(entry.job, entry.epoch) for entry in self.payloads.running_on(self.pilot)}
            deaf = running & {(one.job, one.epoch) for one in given.stop}
            need(not deaf, f"pilot {self.stamp} goes on with {deaf}, which it was told to stop")

    def kill(self) -> None:
        """The process ends. Nobody tells the batch system."""
        self.alive = False
        if self.pilot is not None:
            self.ended = self.clock() if self.ended is None else self.ended
            self.pilot.kill()

    def die(self) -> None:
        """The process ends, and its batch job with it."""
        if self.alive:
            self.kill()
            self.left(137)

    def exited(self, code: int) -> None:
        self.alive, self.exit_code, self.ended = False, code, self.clock()
        self.left(code)


class Sites:
    """All batch systems and pilots."""

    def __init__(self, loop: SimulationLoop, streams: Streams, payloads: PayloadBooks) -> None:
        self._loop, self._streams, self._payloads = loop, streams, payloads
        self._outside = Outside(loop)
        self.network: Network | None = None
        outside: Any = self._outside
        self.idle_takes = IdleTakes(outside, streams.stream("idle"), 5.0)
        self._wake_idle()
        self.pilots: list[PilotProcess] = []
        self.systems = {ce.name: self._system(ce) for ce in CES}
        self._save()

    def _system(self, ce: CeFacts) -> TwinBatchSystem:
        settings = BatchSystemSettings(
            ce.name,
            [NodeSize(ce.nodes, ce.node_processors, MEMORY)],
            wall_limit=ce.wall,
            start_delay=3.0,
            waits=lambda rng: rng.uniform(0, 30),
            past=PAST,
            remembered=100.0,
            kill_wait=10.0,
        )
        return TwinBatchSystem(
            settings,
            partial(self._start_pilot, ce),
            clock=self._loop.time,
            call_at=self._outside.call_at,
            rng=self._streams.stream(f"batch {ce.name}"),
        )

    def _wake_idle(self) -> None:
        """Let each idle pilot ask again."""
        self.idle_takes.changed()
        self._outside.call_later(ASKED, self._wake_idle)

    def _save(self) -> None:
        for system in self.systems.values():
            system.save()
        self._outside.call_later(SAVED, self._save)

    def _start_pilot(self, ce: CeFacts, start: BatchPilotStart, left: Callable[[int], None]) -> StartedPilot:
        assert self.network is not None
        shape = start.submission.shape
        node = Node(start.node, "x86_64", shape.processors, shape.memory or start.node_memory)
        job = BatchJob(
            start.submission.script,
            start.index,
            start.batch_id,
            node,
            start.restarts,
            start.batch_start,
            start.batch_end,
        )
        task = next(self.systems[ce.name].books.of_id(start.batch_id))
        process = PilotProcess(
            ce,
            f"{start.submission.stamp}/{start.index}",
            task,
            self._loop.time(),
            left,
            self._loop.time,
            self._payloads,
        )
        rng = self._streams.stream(f"pilot {len(self.pilots)}")
        process.node_clock = clock = self._clock_of(f"{ce.name} {start.node}")
        process.link = Link(self.network, process.die, process.hear)
        process.pilot = SimulatedPilot(
            job,
            process.link,
            self._payloads,
            clock,  # type: ignore[arg-type]
            rng,
            process.exited,
            self.idle_takes,
        )
        self.pilots.append(process)
        return process

    def _clock_of(self, node: str) -> NodeClock:
        """Half of the nodes have a clock that is wrong, and goes wrong."""
        rng = self._streams.stream(f"clock {node}")
        if rng.random() < 0.5:
            return NodeClock(self._outside, 0.0, 1.0)
        return NodeClock(self._outside, rng.uniform(-SKEW, SKEW), 1 + rng.uniform(-DRIFT, DRIFT))

    def live_pilots(self) -> list[PilotProcess]:
        return [process for process in self.pilots if process.alive]

    def tasks(self, *states: NativeState) -> list[tuple[TwinBatchSystem, BatchTask]]:
        return [
            (system, task)
            for system in self.systems.values()
            for task in system.books.of_stamps(None)
            if task.state in states
        ]

    # What goes wrong

    def happen(self, fault: Fault) -> None:
        """Let a fault of a batch system or of pilots happen, if there is anything that it can concern."""
        action = _ACTIONS[fault.kind]
        action(self, fault)

    def _pilot_dies(self, fault: Fault) -> None:
        if process := _picked(self.live_pilots(), fault.pick):
            process.die()

    def _pilot_hangs(self, fault: Fault) -> None:
        if process := _picked(self.live_pilots(), fault.pick):
            process.kill()

    def _pilots_cut_off(self, fault: Fault) -> None:
        live = self.live_pilots()
        first = int(fault.pick * len(live))
        for process in live[first : first + max(3, len(live) // 2)]:
            assert process.link is not None
            process.link.cut_until = self._loop.time() + fault.seconds
            process.link.cut_from = process.link.host if fault.kind.endswith("one server") else None

    def _pilots_freeze(self, fault: Fault) -> None:
        """They are stopped with their payloads, and go on later, mostly after the end of their leases."""
        live = self.live_pilots()
        first = int(fault.pick * len(live))
        for process in live[first : first + 2]:
            assert process.node_clock is not None
            process.node_clock.frozen_until = self._loop.time() + fault.seconds

    def _of(self, fault: Fault) -> TwinBatchSystem:
        system = _picked(list(self.systems.values()), fault.pick)
        assert system is not None
        return system

    def _away(self, fault: Fault) -> None:
        self._of(fault).go_away(self._loop.time() + fault.seconds)

    def _restart(self, fault: Fault) -> None:
        self._of(fault).restart()

    def _cold_start(self, fault: Fault) -> None:
        self._of(fault).cold_start()

    def _requeue(self, fault: Fault) -> None:
        if found := _picked(self.tasks(NativeState.RUNNING), fault.pick):
            found[0].requeue(found[1].batch_id)

    def _preempt(self, fault: Fault) -> None:
        if found := _picked(self.tasks(NativeState.RUNNING), fault.pick):
            found[0].preempt(found[1].batch_id, requeue=int(fault.pick * 1000) % 2 == 0)

    def _kill(self, fault: Fault) -> None:
        if found := _picked(self.tasks(NativeState.RUNNING), fault.pick):
            found[0].kill(found[1].batch_id)

    def _cancel(self, fault: Fault) -> None:
        states = NativeState.RUNNING, NativeState.WAITING, NativeState.HELD
        if found := _picked(self.tasks(*states), fault.pick):
            found[0].cancel([found[1]])

    def _hold(self, fault: Fault) -> None:
        if found := _picked(self.tasks(NativeState.WAITING, NativeState.HELD), fault.pick):
            stamp = found[1].array.submission.stamp
            found[0].hold(stamp)
            self._outside.call_later(fault.seconds, found[0].unhold, stamp)

    def _node(self, fault: Fault, *, requeue: bool = False, pilots_live: bool = False) -> None:
        system = self._of(fault)
        name = _picked([node.name for node in system.nodes.named.values() if node.up], fault.pick * 7 % 1)
        if name is not None:
            system.fail_node(name, requeue=requeue, pilots_live=pilots_live)
            self._outside.call_later(fault.seconds, system.repair_node, name)


def _picked(items: Iterable[Item], pick: float) -> Item | None:
    known = list(items)
    return known[int(pick * len(known))] if known else None


_ACTIONS: dict[str, Callable[[Sites, Fault], None]] = {
    "pilot dies": Sites._pilot_dies,
    "pilot hangs": Sites._pilot_hangs,
    "pilots cut off": Sites._pilots_cut_off,
    "pilots cut off from one server": Sites._pilots_cut_off,
    "pilots freeze": Sites._pilots_freeze,
    "batch system away": Sites._away,
    "batch system starts again": Sites._restart,
    "batch system starts cold": Sites._cold_start,
    "batch job requeued": Sites._requeue,
    "batch job preempted": Sites._preempt,
    "batch job killed": Sites._kill,
    "batch job cancelled": Sites._cancel,
    "batch jobs held": Sites._hold,
    "node fails": Sites._node,
    "node fails and requeues": partial(Sites._node, requeue=True),
    "node cut off": partial(Sites._node, pilots_live=True),
}
