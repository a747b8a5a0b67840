"""How many pilots a task queue asks for in one iteration ("DIRAC Taskqueue Director"; rules.md, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from pilotage.core.ids import QueueId
from pilotage.core.policy.director import Director
from pilotage.core.queues.identity import QueueIdentity

LARGEST_MEAN = 1e15
"""Bound of the mean of a draw. The caps are far below."""


@dataclass(frozen=True, slots=True)
class DemandQueue:
    """A task queue with waiting jobs, at the begin of an iteration."""

    id: QueueId
    identity: QueueIdentity
    priority: float
    jobs: int
    """Waiting ones."""
    waiting: int = 0
    """Jobs that its waiting pilots can run beside each other. A pilot for one job counts as 1."""
    slot: int = -1
    """Its number in the index."""


@dataclass(frozen=True, slots=True)
class DemandSums:
    """Sums over all waiting queues."""

    priority: float
    jobs: int

    @classmethod
    def of(cls, queues: Sequence[DemandQueue]) -> DemandSums:
        return cls(sum(queue.priority for queue in queues), sum(queue.jobs for queue in queues))


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """Each term for one queue. Pilots are counted in pilots for a single job."""

    by_priority: float
    """pilotsPerPriority · priority."""
    by_jobs: float
    """pilotsPerJob · jobs."""
    boost: float
    """maxCPU / CPU of the queue, or of lowestCPUBoost if that is more."""
    drawn: int
    """A number drawn from the Poisson distribution with the mean (by_priority + by_jobs) · boost."""
    cap: int
    """Waiting pilots that are allowed beyond the present ones; may be negative."""

    @property
    def mean(self) -> float:
        return (self.by_priority + self.by_jobs) * self.boost

    @property
    def pilots(self) -> int:
        """The drawn number within the cap."""
        return max(0, min(self.drawn, self.cap))


def waiting_cap(jobs: int, waiting: int, settings: Director) -> int:
    """Waiting pilots that a queue may have beyond `waiting`.

    >>> [waiting_cap(jobs, 0, Director()) for jobs in (1, 10, 100)]
    [5, 16, 124]
    """
    return int((1 + settings.extra_pilot_fraction) * jobs) + settings.extra_pilots - waiting


def cpu_boost(cpu_time: float, max_cpu: float, settings: Director) -> float:
    """The factor by which a queue of short jobs asks for more pilots."""
    return max_cpu / max(cpu_time, settings.lowest_cpu_boost)


def draw_demands(
    queues: Sequence[DemandQueue], sums: DemandSums, settings: Director, max_cpu: float, rng: Random
) -> list[QueueDemand]:
    """The demand of some of the queues that `sums` is about. `max_cpu`: the highest CPU bucket of the policy."""
    target = settings.pilots_per_iteration
    terms = [
        (
            target * (queue.priority / sums.priority) if sums.priority else 0.0,
            target * (queue.jobs / sums.jobs) if sums.jobs else 0.0,
            cpu_boost(queue.identity.cpu_time, max_cpu, settings),
        )
        for queue in queues
    ]
    means = [min(LARGEST_MEAN, (priority + jobs) * boost) for priority, jobs, boost in terms]
    drawn = np.random.default_rng(rng.getrandbits(128)).poisson(means).tolist()
    return [
        QueueDemand(*parts, number, waiting_cap(queue.jobs, queue.waiting, settings))
        for queue, parts, number in zip(queues, terms, drawn, strict=True)
    ]
