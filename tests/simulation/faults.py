"""The faults of a history, drawn from the seed before it begins. So some can be left out to find those that matter.

A fault waits for its instant, and then for the first occasion at which it can happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from pilotage.twin.batch.faults import BatchFault, BatchFaultKind

MESSAGE: Final = "message"
"""A pilot or an agent sends a message."""
RESULT: Final = "message with a result"
ARRIVAL: Final = "arrival"
"""A message reaches a server."""
COMMIT: Final = "commit"
REPORT_COMMIT: Final = "commit of a report"
"""The next commit after a message arrived with a result, a confirm or a take."""
COMMAND: Final = "command"
"""A server gives a command to a batch system."""
PERSON: Final = "person"
"""A person would get an answer."""
OFFER: Final = "offer"
"""An agent gets elements."""
TIMER: Final = "timer"
"""No occasion is needed."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    occasion: str
    weight: float
    seconds: tuple[float, float] = (0.0, 0.0)
    """Between what its `seconds` lie."""


def _batch(command: str, *kinds: BatchFaultKind, weight: float = 0.5) -> dict[str, FaultKind]:
    return {f"{command} {kind}": FaultKind(f"batch {command}", weight, (5.0, 120.0)) for kind in kinds}


_K = BatchFaultKind

KINDS: Final[Mapping[str, FaultKind]] = {
    "request lost": FaultKind(MESSAGE, 2),
    "answer lost": FaultKind(MESSAGE, 3),
    "request doubled": FaultKind(MESSAGE, 2, (0.0, 200.0)),
    "request delayed": FaultKind(MESSAGE, 2, (5.0, 300.0)),
    "answer delayed": FaultKind(MESSAGE, 2, (1.0, 29.0)),
    "result doubled": FaultKind(RESULT, 2, (0.0, 200.0)),
    "result delayed": FaultKind(RESULT, 2, (5.0, 300.0)),
    "answer to a result lost": FaultKind(RESULT, 2),
    "sender dies after sending": FaultKind(MESSAGE, 1),
    "answer to a person lost": FaultKind(PERSON, 3),
    "server dies at a message": FaultKind(ARRIVAL, 1, (1.0, 200.0)),
    "server dies before its answer": FaultKind(ARRIVAL, 1, (1.0, 200.0)),
    "server dies before a commit": FaultKind(COMMIT, 1, (1.0, 200.0)),
    "server dies after a commit": FaultKind(COMMIT, 1, (1.0, 200.0)),
    "commit fails": FaultKind(COMMIT, 2),
    "server dies before the commit of a report": FaultKind(REPORT_COMMIT, 2, (1.0, 200.0)),
    "server dies after the commit of a report": FaultKind(REPORT_COMMIT, 1.5, (1.0, 200.0)),
    "commit of a report fails": FaultKind(REPORT_COMMIT, 4),
    "server dies before a command": FaultKind(COMMAND, 1, (1.0, 200.0)),
    "server dies after a command": FaultKind(COMMAND, 1.5, (1.0, 200.0)),
    **_batch("submit", _K.LOST_BEFORE, _K.LOST_AFTER, _K.FULL, _K.REFUSED, _K.PARTLY),
    **_batch("release", _K.LOST_BEFORE, _K.LOST_AFTER, _K.LIES, _K.REFUSED),
    **_batch("cancel", _K.LOST_BEFORE, _K.LOST_AFTER, _K.LIES, weight=0.2),
    **_batch("cancel_tasks", _K.LOST_BEFORE, _K.LOST_AFTER, _K.LIES, weight=0.1),
    **_batch("list_pilots", _K.LOST_BEFORE, _K.LIES, _K.PARTLY, _K.CUT, _K.STALE),
    **_batch("list_accounted", _K.LOST_BEFORE),
    "server stops": FaultKind(TIMER, 1, (1.0, 100.0)),
    "server dies": FaultKind(TIMER, 1, (1.0, 200.0)),
    "server cut off": FaultKind(TIMER, 1, (10.0, 250.0)),
    "pilots cut off": FaultKind(TIMER, 4, (60.0, 400.0)),
    "pilots cut off from one server": FaultKind(TIMER, 1, (60.0, 400.0)),
    "server freezes": FaultKind(TIMER, 1, (5.0, 150.0)),
    "pilots freeze": FaultKind(TIMER, 2, (20.0, 300.0)),
    "clock jumps": FaultKind(TIMER, 1, (-300.0, 300.0)),
    "server restored": FaultKind(TIMER, 0.8, (5.0, 200.0)),
    "pilot dies": FaultKind(TIMER, 2),
    "pilot hangs": FaultKind(TIMER, 1),
    "agent dies": FaultKind(TIMER, 1.5, (5.0, 250.0)),
    "agent stops": FaultKind(TIMER, 0.5),
    "agent freezes": FaultKind(TIMER, 1, (20.0, 150.0)),
    "agent cut off": FaultKind(TIMER, 1, (20.0, 150.0)),
    "batch system away": FaultKind(TIMER, 1, (10.0, 200.0)),
    "batch system starts again": FaultKind(TIMER, 0.5),
    "batch system starts cold": FaultKind(TIMER, 1.5),
    "batch job requeued": FaultKind(TIMER, 1),
    "batch job preempted": FaultKind(TIMER, 1),
    "batch job killed": FaultKind(TIMER, 1),
    "batch job cancelled": FaultKind(TIMER, 1),
    "batch jobs held": FaultKind(TIMER, 1, (10.0, 300.0)),
    "node fails": FaultKind(TIMER, 1, (10.0, 300.0)),
    "node fails and requeues": FaultKind(TIMER, 1, (10.0, 300.0)),
    "node cut off": FaultKind(TIMER, 1, (10.0, 300.0)),
}

KINDS_OF_OVERLAPS: Final[Mapping[str, FaultKind]] = {
    "agent dies with elements": FaultKind(OFFER, 1, (5.0, 25.0)),
    "agent forgets elements": FaultKind(OFFER, 4, (4.0, 16.0)),
}
"""Further faults of histories with transactions that overlap."""
_OCCASIONS: Final = {
    name: kind.occasion for kinds in (KINDS, KINDS_OF_OVERLAPS) for name, kind in kinds.items()
}


@dataclass(frozen=True, slots=True)
class Fault:
    number: int
    kind: str
    at: float
    """Seconds from the begin of the history."""
    seconds: float
    pick: float
    """Chooses among what it can concern: 0 to 1."""

    def __str__(self) -> str:
        text = f"{self.number:3} from {self.at:6.1f} s: {self.kind}"
        return f"{text} ({self.seconds:.1f} s)" if self.seconds else text


def draw_faults(
    rng: Random, count: int, until: float, kinds: Mapping[str, FaultKind] = KINDS, *, first: int = 0
) -> list[Fault]:
    """`first`: the number of the first one."""
    names = list(kinds)
    drawn = rng.choices(names, [kinds[name].weight for name in names], k=count)
    instants = sorted(rng.uniform(0, until) for _ in drawn)
    return [
        Fault(number, name, at, rng.uniform(*kinds[name].seconds), rng.random())
        for number, (name, at) in enumerate(zip(drawn, instants, strict=True), first)
    ]


class FaultQueue:
    """The faults that have not happened yet."""

    def __init__(self, faults: list[Fault], only: Container[int] | None, now: Callable[[], float]) -> None:
        """`only`: the numbers of those that happen; None: all. `now`: seconds from the begin."""
        self._now = now
        self._waiting: dict[str, deque[Fault]] = {}
        self.happened: list[tuple[float, Fault]] = []
        for fault in faults:
            if only is None or fault.number in only:
                self._waiting.setdefault(_OCCASIONS[fault.kind], deque()).append(fault)

    def take(self, occasion: str) -> Fault | None:
        """The fault that happens at this occasion."""
        waiting = self._waiting.get(occasion)
        if not waiting or waiting[0].at > self._now():
            return None
        return self.note(waiting.popleft())

    def note(self, fault: Fault) -> Fault:
        self.happened.append((self._now(), fault))
        return fault

    def timed(self) -> list[Fault]:
        """The faults that need no occasion. The caller lets them happen, and notes them."""
        return list(self._waiting.pop(TIMER, ()))

    def cease(self) -> None:
        self._waiting.clear()


class CommandFaults:
    """Implements `BatchFaults`."""

    def __init__(self, queue: FaultQueue) -> None:
        self._queue = queue

    def next(self, command: str) -> BatchFault | None:
        fault = self._queue.take(f"batch {command}")
        if fault is None:
            return None
        return BatchFault(BatchFaultKind(fault.kind.partition(" ")[2]), part=fault.pick, age=fault.seconds)
