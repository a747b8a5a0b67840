"""The priorities of task queues (docs/reference/rules.md, section 4), kept up to date by change.

Entity = a JOB_SHARING group, or (owner, group) otherwise. E = the group's corrected share, or the owner's part of
it: share · correction / Σ corrections of the owners with waiting jobs, which is share / U without corrections.
Priority of a queue = E · J, J = its sum of UserPriority / the same sum over the entity's queues; where that sum is
0, its jobs / all jobs of the entity.

A change costs a few dictionary operations and computes no other queue. `recompute` does that later, only for the
entities that have changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pilotage.core.shares.use import Entity

Queue = TypeVar("Queue", bound=Hashable)


def scaled_range(lowest: float, highest: float, owners: int) -> tuple[float, float]:
    """Smallest and largest part that an owner among `owners` can get, relative to an equal share.

    Corrections of owners lie between `lowest` and `highest` and are then scaled so that the owners add up to their
    group's share. An owner reaches an end if its correction is at one end and all others are at the other end. With
    more and more owners the ends approach lowest/highest and highest/lowest.
    """
    others = owners - 1
    return (
        owners * lowest / (lowest + others * highest),
        owners * highest / (highest + others * lowest),
    )


@dataclass(slots=True)
class _Waiting(Generic[Queue]):
    """The waiting jobs of one entity: (sum of UserPriority, jobs) by queue, and the sums of both."""

    queues: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    weight: int = 0
    jobs: int = 0

    def priority(self, share: float, weight: int, jobs: int) -> float:
        """The priority of a queue with `jobs` jobs and the sum `weight` of UserPriority.

        All callers use this formula: queues of one priority are one class of the draw, and would be two classes if the
        last digits of their priorities differed.
        """
        return share * weight / self.weight if self.weight else share * jobs / self.jobs


@dataclass(frozen=True, slots=True)
class Entitled:
    """The present share of one entity. `owner` is empty for a JOB_SHARING group.

    `share` is E. `correction` is the factor of the group, or of the owner after scaling. `waiting` is the number of
    waiting jobs in `queues` queues.
    """

    owner: str
    group: str
    share: float
    correction: float
    waiting: int
    queues: int


class Priorities(Generic[Queue]):
    """The priorities of all queues with waiting jobs. Used by one thread only.

    `shares` come from the policy, by group; `sharing` are the JOB_SHARING groups.
    """

    def __init__(self, shares: Mapping[str, float], sharing: frozenset[str]) -> None:
        self._shares = dict(shares)
        self._sharing = sharing
        self._group_factors: Mapping[str, float] = {}
        self._owner_factors: Mapping[Entity, float] = {}
        self._waiting: dict[Entity, _Waiting[Queue]] = {}
        self._owners: dict[str, dict[str, float]] = {}
        """The factors of the owners with waiting jobs, for each group without JOB_SHARING."""
        self._scales: dict[str, float] = {}
        """The sum of the owners' factors, by group."""
        self._changed: dict[Entity, None] = {}
        """Entities in the order of their changes: the order of a set differs between processes."""
        self._changed_groups: dict[str, None] = {}
        """Groups in which an owner began or stopped waiting."""
        self.newcomers = False
        """True once an entity without a correction begins to wait. The corrections duty clears it."""

    def entity(self, owner: str, group: str) -> Entity:
        return ("", group) if group in self._sharing else (owner, group)

    def entitled(self, entity: Entity) -> float:
        """E, for an entity with waiting jobs."""
        owner, group = entity
        share = self._shares.get(group, 0.0) * self._group_factors.get(group, 1.0)
        if not owner:
            return share
        return share * self._owners[group][owner] / self._scales[group]

    def set(self, queue: Queue, owner: str, group: str, weight: int, jobs: int) -> None:
        """Set the waiting jobs of `queue` and their sum of UserPriority. With 0 jobs the queue is removed."""
        entity = self.entity(owner, group)
        waiting = self._waiting.get(entity)
        if waiting is None:
            if not jobs:
                return
            waiting = self._waiting[entity] = _Waiting()
            self._add_entity(entity)
        old_weight, old_jobs = waiting.queues.pop(queue, (0, 0))
        waiting.weight += weight - old_weight
        waiting.jobs += jobs - old_jobs
        self._changed[entity] = None
        if jobs:
            waiting.queues[queue] = (weight, jobs)
        elif not waiting.queues:
            del self._waiting[entity]
            self._remove_entity(entity)

    def of(self, queue: Queue, owner: str, group: str) -> float:
        """The priority of one queue with waiting jobs, as of now."""
        entity = self.entity(owner, group)
        waiting = self._waiting[entity]
        return waiting.priority(self.entitled(entity), *waiting.queues[queue])

    @property
    def has_changes(self) -> bool:
        """Whether anything has changed since the last `recompute`."""
        return bool(self._changed or self._changed_groups)

    def recompute(self) -> Iterator[tuple[Queue, float]]:
        """The new priorities of all queues of the entities that have changed since the last call."""
        for group in self._changed_groups:
            present = self._owners.get(group)
            if present is None:
                continue
            # Summed again, since additions and subtractions leave rounding errors.
            self._scales[group] = sum(present.values())
            self._changed |= dict.fromkeys((owner, group) for owner in present)
        self._changed_groups.clear()
        changed, self._changed = self._changed, {}
        for entity in changed:
            # Read only now: between two queues the caller may make other changes.
            waiting = self._waiting.get(entity)
            if waiting is not None:
                yield from self._of_entity(entity, waiting)

    def _of_entity(self, entity: Entity, waiting: _Waiting[Queue]) -> list[tuple[Queue, float]]:
        share = self.entitled(entity)
        return [(queue, waiting.priority(share, *amounts)) for queue, amounts in waiting.queues.items()]

    def correct(self, groups: Mapping[str, float], owners: Mapping[Entity, float]) -> None:
        """Set the correction factors by group and by (owner, group). An entity without one has the factor 1."""
        if groups == self._group_factors and owners == self._owner_factors:
            return
        self._group_factors, self._owner_factors = groups, owners
        for group, present in self._owners.items():
            for owner in present:
                present[owner] = owners.get((owner, group), 1.0)
            self._scales[group] = sum(present.values())
        self._changed |= dict.fromkeys(self._waiting)

    def waiting_owners(self) -> frozenset[Entity]:
        """The entities with waiting jobs."""
        return frozenset(self._waiting)

    def table(self) -> list[Entitled]:
        """Every entity with waiting jobs, by group and owner."""
        rows = []
        for (owner, group), waiting in sorted(self._waiting.items()):
            factor = self._group_factors.get(group, 1.0)
            if owner:
                present = self._owners[group]
                factor = present[owner] * len(present) / self._scales[group]
            share = self.entitled((owner, group))
            rows.append(Entitled(owner, group, share, factor, waiting.jobs, len(waiting.queues)))
        return rows

    def _add_entity(self, entity: Entity) -> None:
        owner, group = entity
        self.newcomers = True
        if owner:
            factor = self._owner_factors.get(entity, 1.0)
            self._owners.setdefault(group, {})[owner] = factor
            self._scales[group] = self._scales.get(group, 0.0) + factor
            self._changed_groups[group] = None

    def _remove_entity(self, entity: Entity) -> None:
        owner, group = entity
        self._changed.pop(entity, None)
        if owner:
            present = self._owners[group]
            self._scales[group] -= present.pop(owner)
            self._changed_groups[group] = None
            if not present:
                del self._owners[group], self._scales[group]
