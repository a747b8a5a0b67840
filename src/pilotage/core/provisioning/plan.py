"""The plan of one cycle: every waiting job is counted once, and a pilot without a job covers one.

A queue that is too wide for every pilot of the CE *starves*. After `PATIENCE` its processors are kept for it: narrow
pilots are told to leave, and no other queue gets the processors that come free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.queues.identity import QueueIdentity

PATIENCE = 30.0
"""Seconds for which a wide queue may starve before narrow pilots are told to leave for it."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The processors and memory that the pilots of a CE may use together."""

    processors: int
    memory: int = 0
    """MB; 0: not known, and no job is refused for it."""

    def width(self, queue: WaitingQueue | QueueIdentity) -> int:
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


@dataclass(frozen=True, slots=True)
class PlannedPilot:
    """A pilot to start."""

    processors: int
    queue: QueueId
    """The queue that it is started for; it may serve others."""
    follows: PilotId | None = None
    """The pilot that gave way and in whose place it is started."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions for one CE."""

    orders: tuple[PlannedPilot, ...] = ()
    drains: tuple[PilotId, ...] = ()
    """Pilots that leave after their jobs."""
    starving_since: Mapping[QueueId, float] = field(default_factory=dict)
    """The instant since when each starving queue starves."""


def plan(facts: ProvisioningFacts, now: float, rng: Random) -> Plan:
    """Decide which pilots to start and which to drain; a succession without an order gets no pilot.

    Queues are served in random order, so that none of them always comes first. Starving ones come before all others.
    """
    draft = _PlanDraft(facts, now)
    queues = draft.candidates()
    rng.shuffle(queues)
    draft.count_uncovered(queues)
    starving = draft.out_of_patience(queues)
    for queue in starving:
        draft.serve(queue)
    draft.follow(queues)
    served = {queue.id for queue in starving}
    for queue in queues:
        if queue.id not in served:
            draft.serve(queue)
    return Plan(tuple(draft.orders), tuple(draft.drains), draft.starving_since)


def decided_above(capacity: Capacity, pilots: Iterable[LivePilot]) -> int:
    """The width up to which nothing can be decided for a queue: on a full CE only one that starves wants anything."""
    free, widest = capacity.processors, 0
    for pilot in pilots:
        free -= pilot.processors
        if not pilot.leaves:
            widest = max(widest, pilot.processors)
    return widest if free < 1 else 0


class _PlanDraft:
    """A plan in the making."""

    def __init__(self, facts: ProvisioningFacts, now: float) -> None:
        self._facts, self._now = facts, now
        self._staying = [pilot for pilot in facts.pilots if not pilot.leaves]
        self._idle = Counter(
            (pilot.processors, pilot.only_owner) for pilot in self._staying if not pilot.has_job
        )
        self._free = facts.capacity.processors - sum(pilot.processors for pilot in facts.pilots)
        self._coming_free = sum(
            pilot.processors for pilot in facts.pilots if pilot.leaves and not pilot.has_successor
        )
        self._widest = max((pilot.processors for pilot in self._staying), default=0)
        """The most processors of a pilot that stays, is ordered, or is waited for."""
        self._uncovered: dict[QueueId, int] = {}
        self.orders: list[PlannedPilot] = []
        self.drains: list[PilotId] = []
        self.starving_since: dict[QueueId, float] = {}

    def candidates(self) -> list[WaitingQueue]:
        """The queues that may get a pilot."""
        above = decided_above(self._facts.capacity, self._facts.pilots)
        return [
            queue
            for queue in self._facts.queues
            if not queue.paused and above < self._width(queue) <= self._facts.capacity.processors
        ]

    def count_uncovered(self, queues: Iterable[WaitingQueue]) -> None:
        """Count the jobs that no idle pilot will take."""
        for queue in queues:
            self._uncovered[queue.id] = queue.jobs - self._cover(queue)

    def out_of_patience(self, queues: Iterable[WaitingQueue]) -> list[WaitingQueue]:
        """Queues that have starved for `PATIENCE` and still do, the widest first."""
        before = self._facts.starving_since
        overdue = [
            queue
            for queue in queues
            if self._starves(queue) and self._now - before.get(queue.id, self._now) >= PATIENCE
        ]
        # One that is as wide serves the narrower ones too.
        return sorted(overdue, key=lambda queue: (-self._width(queue), before[queue.id], queue.id))

    def serve(self, queue: WaitingQueue) -> None:
        """Order the pilots that the queue needs, as far as processors are free; else see whether it starves."""
        width = self._width(queue)
        while self._uncovered[queue.id] > 0 and self._free >= width:
            self._order(queue, width)
        if self._starves(queue):
            # A clock that was set back starts the patience again.
            since = min(self._facts.starving_since.get(queue.id, self._now), self._now)
            self.starving_since[queue.id] = since
            if self._now - since >= PATIENCE:
                self._keep_room(width)

    def follow(self, queues: Sequence[WaitingQueue]) -> None:
        """Order the successors of pilots that gave way."""
        for succession in self._facts.successions:
            for queue in queues:
                width = self._width(queue)
                fits = queue.owner == succession.owner and width <= self._free
                if fits and self._uncovered[queue.id] > 0:
                    self._order(queue, width, follows=succession.pilot)
                    break

    def _width(self, queue: WaitingQueue) -> int:
        return self._facts.capacity.width(queue)

    def _cover(self, queue: WaitingQueue) -> int:
        """Jobs of the queue that idle pilots will take; these cover no other jobs then."""
        width, covered = self._width(queue), 0
        fitting = [kind for kind in self._idle if kind[0] >= width and kind[1] in (None, queue.owner)]
        # The narrowest first, and bound pilots before pilots that can serve anybody.
        for kind in sorted(fitting, key=lambda kind: (kind[0], kind[1] is None)):
            taken = min(self._idle[kind], queue.jobs - covered)
            self._idle[kind] -= taken
            covered += taken
        return covered

    def _starves(self, queue: WaitingQueue) -> bool:
        return self._uncovered[queue.id] > 0 and self._width(queue) > self._widest

    def _order(self, queue: WaitingQueue, width: int, follows: PilotId | None = None) -> None:
        self.orders.append(PlannedPilot(width, queue.id, follows))
        self._uncovered[queue.id] -= 1
        self._free -= width
        self._widest = max(self._widest, width)

    def _keep_room(self, width: int) -> None:
        """Keep `width` processors for a pilot to come: free ones, ones that come free, and ones of drained pilots."""
        for pilot in self._drainable():
            if self._free + self._coming_free >= width:
                break
            self.drains.append(pilot.id)
            self._coming_free += pilot.processors
        from_free = max(0, min(width, self._free))
        self._free -= from_free
        self._coming_free = max(0, self._coming_free - (width - from_free))
        self._widest = width

    def _drainable(self) -> list[LivePilot]:
        drained = set(self.drains)
        return [pilot for pilot in self._staying if pilot.id not in drained]
