"""Priorities under the draw rules (draws.py): the chance of a queue at one draw, and who is before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pilotage.core.queues.draws import Rule, orders_strictly
from pilotage.core.queues.indexed_queue import Entity, IndexedQueue

NODES = 64
"""Points of the numerical integral."""

NEGLIGIBLE = 60.0
"""Upper end of the integral in mean values: the rest is below e to the minus this."""

RIVALS = 5

_POINTS, _WIDTHS = np.polynomial.legendre.leggauss(NODES)


def win_probability(priority: float, others: Iterable[float], rule: Rule) -> float:
    """How likely a queue of `priority` wins one draw against queues of priorities `others`.

    document: the smallest `rand()/p` wins, hence ∫ p Π(1 - p_j x) dx from 0 to 1/max(p, p_j). proportional: p/Σp.
    A priority of 0 loses against every positive one; if all are 0, everyone is equally likely.
    """
    counted = Counter(others)
    if priority <= 0:
        return 0.0 if any(p > 0 for p in counted) else 1 / (1 + counted.total())
    total = priority + sum(p * n for p, n in counted.items())
    if rule == "proportional":
        return priority / total
    weights = np.array([p for p in counted if p > 0])
    numbers = np.array([n for p, n in counted.items() if p > 0], dtype=float)
    end = min(1 / max(priority, weights.max(initial=0.0)), NEGLIGIBLE / total)
    x = (_POINTS + 1) / 2 * end
    logs = np.log1p(-np.outer(x, weights)) @ numbers
    return float(min(1.0, priority * end * (_WIDTHS @ np.exp(logs)) / 2))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Queues of one higher CPU bucket that are drawn before."""

    cpu_time: int
    queues: int
    jobs: int


@dataclass(frozen=True, slots=True)
class DrawRival:
    """An entity whose queues take part in the same draw: the sum of their priorities, and how it relates to ours."""

    owner: str
    group: str
    priority: float
    ratio: float
    waiting: int


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of a queue among all queues that fit the same offer."""

    buckets: tuple[Bucket, ...]
    """Not empty: under the document's rule these go first, and the rest tells of the draw after them."""
    chance: float
    """At one draw among the queues of its turn."""
    queues: int
    """How many take part in that draw, itself included."""
    ours: float
    """The sum of the priorities of its entity in that draw."""
    ahead: int
    """Entities with a larger one."""
    rivals: tuple[DrawRival, ...]
    """The entities with the largest sums, the largest first."""


def rank(entry: IndexedQueue, candidates: Sequence[IndexedQueue], rule: Rule) -> Rank:
    """How `entry` stands among `candidates`, the queues that take part with one offer; itself may be among them."""
    others = [other for other in candidates if other.id != entry.id]
    own = entry.identity.cpu_time
    buckets: tuple[Bucket, ...] = ()
    if rule == "dirac":
        buckets = _higher(others, own)
        others = [other for other in others if other.identity.cpu_time == own]
    sums: dict[Entity, float] = {entry.entity: entry.priority}
    waiting: dict[Entity, int] = {}
    for other in others:
        sums[other.entity] = sums.get(other.entity, 0.0) + other.priority
        waiting[other.entity] = waiting.get(other.entity, 0) + other.waiting
    ours = sums[entry.entity]
    rivals = _rivals(entry.entity, sums, waiting)
    likely = win_probability(entry.priority, (other.priority for other in others), rule)
    if orders_strictly(rule):
        likely *= _own_order(entry, others)
    ahead = sum(1 for rival in sums if rival != entry.entity and _greater(sums[rival], ours))
    return Rank(buckets, likely, len(others) + 1, ours, ahead, rivals)


def _own_order(entry: IndexedQueue, others: Sequence[IndexedQueue]) -> float:
    """The factor by which the order among its owner's queues (own_order.py) changes the chance of a queue."""
    own = [other for other in others if _owner(other) == _owner(entry)]
    place = entry.order_place or 0
    if any((other.order_place or 0) > place for other in own):
        return 0.0
    equal = entry.priority + sum(other.priority for other in own if (other.order_place or 0) == place)
    lower = sum(other.priority for other in own if (other.order_place or 0) < place)
    return 1 + lower / equal if equal else 1.0


def _owner(entry: IndexedQueue) -> tuple[str, str]:
    return entry.identity.owner, entry.identity.group


def _greater(value: float, other: float) -> bool:
    """Greater by more than the rounding error of equal shares."""
    return value > other * (1 + 1e-9)


def _higher(others: Sequence[IndexedQueue], own: int) -> tuple[Bucket, ...]:
    by_cpu_time: dict[int, list[IndexedQueue]] = {}
    for queue in others:
        if queue.identity.cpu_time > own:
            by_cpu_time.setdefault(queue.identity.cpu_time, []).append(queue)
    return tuple(
        Bucket(cpu_time, len(queues), sum(queue.waiting for queue in queues))
        for cpu_time, queues in sorted(by_cpu_time.items(), reverse=True)
    )


def _rivals(
    own: Entity, sums: Mapping[Entity, float], waiting: Mapping[Entity, int]
) -> tuple[DrawRival, ...]:
    ours = sums[own]
    largest = sorted((entity for entity in sums if entity != own), key=lambda entity: -sums[entity])[:RIVALS]
    return tuple(
        DrawRival(*entity, sums[entity], sums[entity] / ours if ours else 0.0, waiting[entity])
        for entity in largest
    )
