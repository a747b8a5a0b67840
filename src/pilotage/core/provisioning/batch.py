"""Pilots to submit to a batch system, by matched demand: each waiting job is counted once.

A pilot of a batch CE has a fixed size and waits in a queue of the batch system. Where payloads are not isolated from
each other, it is bound to one owner when it is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from pilotage.core.ids import QueueId


@dataclass(frozen=True, slots=True)
class BatchQueue:
    """A task queue whose jobs fit a pilot of the CE."""

    id: QueueId
    owner: str
    jobs: int
    """Waiting ones."""
    beside: int = 1
    """Jobs of this queue that run beside each other in one pilot."""


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """One instant at one CE."""

    room: int
    """Pilots that may be submitted now."""
    binds: bool
    """Whether each pilot is bound to one owner when it is submitted."""
    queues: tuple[BatchQueue, ...] = ()
    free_pilots: Mapping[str | None, int] = field(default_factory=dict)
    """Pilots without a job, by owner: they wait, run, or are in doubt. None: they serve everybody."""


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Pilots of one submission: all are alike."""

    owner: str | None
    """The owner that they are bound to; None: they serve everybody."""
    pilots: int
    queue: QueueId
    """The first queue that they are for; they may serve others."""


def room_for_pilots(waiting: int, running: int, max_waiting: int, max_running: int) -> int:
    """Pilots that a CE's caps still allow. A waiting pilot counts as one that will run."""
    return max(0, min(max_waiting - waiting, max_running - running - waiting))


def plan_submissions(facts: BatchFacts, rng: Random) -> tuple[BatchOrder, ...]:
    """Decide the submissions: never more pilots than the room, and one for each queue before a second one for any.

    Queues are served in random order, so that none of them always comes first.
    """
    queues = list(facts.queues)
    rng.shuffle(queues)
    missing = _missing_pilots(facts, queues)
    pilots: dict[str | None, int] = {}
    first_queue: dict[str | None, QueueId] = {}
    room = facts.room
    while room > 0 and any(missing.values()):
        for queue in queues:
            if room > 0 and missing[queue.id] > 0:
                owner = queue.owner if facts.binds else None
                first_queue.setdefault(owner, queue.id)
                pilots[owner] = pilots.get(owner, 0) + 1
                missing[queue.id] -= 1
                room -= 1
    return tuple(BatchOrder(owner, count, first_queue[owner]) for owner, count in pilots.items())


def _missing_pilots(facts: BatchFacts, queues: list[BatchQueue]) -> dict[QueueId, int]:
    """Pilots that each queue lacks. Pilots bound to its owner count first, then pilots that serve everybody."""
    free = dict(facts.free_pilots)
    missing: dict[QueueId, int] = {}
    for queue in queues:
        needed = -(-queue.jobs // max(1, queue.beside))
        for owner in (queue.owner, None):
            covered = min(needed, free.get(owner, 0))
            if covered:
                free[owner] -= covered
                needed -= covered
        missing[queue.id] = needed
    return missing
