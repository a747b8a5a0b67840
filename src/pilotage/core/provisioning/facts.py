"""The facts that a plan is made from: one CE, its pilots, and the queues that a pilot there could serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.core.ids import PilotId, QueueId


@dataclass(frozen=True, slots=True)
class Capacity:
    """The processors and memory that the pilots of a CE may use together."""

    processors: int
    memory: int = 0
    """MB; 0: not known, and no job is refused for it."""

    def width(self, queue: WaitingQueue) -> int:
        """Processors of a pilot for one job of `queue`. Memory comes in proportion to processors."""
        for_memory = -(-queue.memory * self.processors // self.memory) if self.memory else 0
        return max(queue.processors, for_memory)


@dataclass(frozen=True, slots=True)
class LivePilot:
    """A pilot that has been ordered and has not ended."""

    id: PilotId
    processors: int
    only_owner: str | None = None
    """The owner that it is bound to."""
    has_job: bool = False
    leaves: bool = False
    """It was told to leave."""
    has_successor: bool = False
    """It gives way to another owner's pilot: its processors do not come free."""


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """A task queue whose jobs fit a pilot with all of the CE's capacity."""

    id: QueueId
    owner: str
    jobs: int
    """Waiting ones."""
    processors: int = 1
    memory: int = 0
    """MB that a job asks for."""
    paused: bool = False
    """The last pilots for this queue had no job, so no further one is started for a while."""


@dataclass(frozen=True, slots=True)
class Succession:
    """A pilot that gave way has ended: the next turn in its place belongs to `owner`."""

    pilot: PilotId
    owner: str


@dataclass(frozen=True, slots=True)
class ProvisioningFacts:
    """One instant at one CE."""

    capacity: Capacity
    pilots: tuple[LivePilot, ...] = ()
    queues: tuple[WaitingQueue, ...] = ()
    successions: tuple[Succession, ...] = ()
    starving_since: Mapping[QueueId, float] = field(default_factory=dict)
    """`Plan.starving_since` of the last plan."""
