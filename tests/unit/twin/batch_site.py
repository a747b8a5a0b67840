"""A batch system in virtual time with its pilots, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.twin.batch.adapter import TwinBatchAdapter
from pilotage.twin.batch.faults import BatchFault, BatchFaultKind
from pilotage.twin.batch.system import BatchSystemSettings, TwinBatchSystem
from pilotage.twin.batch.tasks import BatchPilotStart
from tests.virtual_timers import VirtualTimers

WALL = 3600.0
ONE = Shape(1)


class Pilot:
    """It lives until it is told to end, or until somebody lets it `leave`."""

    def __init__(self, start: BatchPilotStart, began: float, ended: Callable[[int], None]) -> None:
        self.start = start
        self.began = began
        self.leave = ended
        self.signals: list[str] = []
        self.killed = False
        self.polite = False
        """It leaves at the first signal."""

    def signal(self, name: str) -> None:
        self.signals.append(name)
        if self.polite:
            self.leave(0)

    def kill(self) -> None:
        self.killed = True
        self.leave(137)


class Faults:
    """Each command has the next fault that is planned for it."""

    def __init__(self) -> None:
        self.planned: dict[str, list[BatchFault]] = {}

    def plan(self, command: str, kind: BatchFaultKind, **details: float) -> None:
        self.planned.setdefault(command, []).append(BatchFault(kind, **details))

    def next(self, command: str) -> BatchFault | None:
        planned = self.planned.get(command)
        return planned.pop(0) if planned else None


class BatchSite:
    """A batch system, its adapter, and the pilots that it has started."""

    def __init__(self, *kinds: NodeSize, **settings: Any) -> None:
        self.timers = VirtualTimers()
        self.pilots: list[Pilot] = []
        """All that were started, in their order."""
        self.polite = False
        """Pilots that start now leave at the first signal."""
        self.faults = Faults()
        self.system = TwinBatchSystem(
            BatchSystemSettings("site", kinds or (NodeSize(2, 4, 4000),), **settings),
            self._start,
            clock=self.timers.clock,
            call_at=self.timers.call_at,
            rng=Random(7),
        )
        self.batch = TwinBatchAdapter(self.system, self.faults)

    def _start(self, start: BatchPilotStart, ended: Callable[[int], None]) -> Pilot:
        pilot = Pilot(start, self.timers.now, ended)
        pilot.polite = self.polite
        self.pilots.append(pilot)
        return pilot

    def submit(self, stamp: str, count: int = 1, shape: Shape = ONE) -> Sequence[str]:
        return self.batch.submit(BatchSubmission(stamp, count, shape, f"secret of {stamp}")).batch_ids

    def run(self, stamp: str, count: int = 1, shape: Shape = ONE) -> Sequence[str]:
        """Submit pilots and release them; those that fit start."""
        ids = self.submit(stamp, count, shape)
        self.batch.release([stamp])
        self.timers.advance(0)
        return ids

    def tasks(self, *stamps: str) -> list[ListedTask]:
        return list(self.batch.list_pilots(stamps or None).tasks)

    def states(self, *stamps: str) -> dict[NativeState, int]:
        return Counter(task.state for task in self.tasks(*stamps))

    def native(self, batch_id: str) -> tuple[str, str]:
        """The word and the reason that listings have for a batch job."""
        [task] = (task for task in self.tasks() if task.batch_id == batch_id)
        return task.native, task.reason

    def started(self) -> list[str]:
        return [pilot.start.batch_id for pilot in self.pilots]
