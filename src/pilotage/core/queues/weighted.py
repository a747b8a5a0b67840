"""One draw among many weights that all differ, at a cost that hardly grows with their number (RULES 3).

Members lie in classes by the power of two above their weight. The cost is that of the classes, some ten or twenty,
and of a few candidates that are taken or refused: a change of weight within its class costs nothing at all.

proportional: a class by its number of members times its upper bound, any member of it, taken with the chance
weight / bound, which is at least a half.

document, the smallest `rand()/weight`: a member that has not come up to x comes up there at the rate
weight / (1 - weight·x). Below half of the smallest end 1/weight that rate is at most twice the weight, so candidates
are made at the rate of twice the bounds and each is taken with the chance that remains (thinning: Lewis and
Shedler, 1979). The few heaviest are drawn one by one, since theirs are the short ends. Where nothing comes up in
time, which is rare as soon as there are many, all others are drawn one by one as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

from pilotage.core.queues.draws import Rule
from pilotage.core.queues.members import Members

Member = TypeVar("Member")

FEW = 32
"""So many of the heaviest members are drawn one by one under the document's rule."""

NOTHING = -(10**6)
"""The class of weight 0, which loses against all others."""


def class_of(weight: float) -> int:
    """The k for which 2**(k-1) <= weight < 2**k; NOTHING for 0.

    >>> [class_of(weight) for weight in (0.5, 0.75, 1, 1000)]
    [0, 0, 1, 10]
    """
    return math.frexp(weight)[1] if weight > 0 else NOTHING


class Weighted(Generic[Member]):
    """Members by the class of their weight."""

    __slots__ = ("classes",)

    def __init__(self) -> None:
        self.classes: dict[int, Members[Member]] = {}

    def __bool__(self) -> bool:
        return bool(self.classes)

    def add(self, member: Member, of_class: int) -> None:
        members = self.classes.get(of_class)
        if members is None:
            members = self.classes[of_class] = Members()
        members.add(member)

    def discard(self, member: Member, of_class: int) -> bool:
        """Whether it was there."""
        members = self.classes.get(of_class)
        if members is None or not members.discard(member):
            return False
        if not members:
            del self.classes[of_class]
        return True


def draw(
    pools: Iterable[Weighted[Member]], rule: Rule, weight: Callable[[Member], float], rng: Random
) -> Member:
    """One member of all `pools` by `weight`, whose class each must be in. There must be one."""
    groups = [group for pool in pools for group in pool.classes.items()]
    positive = [group for group in groups if group[0] != NOTHING]
    if not positive:
        return _any([members for _, members in groups], rng)
    if rule == "proportional":
        return _proportional(positive, weight, rng)
    return _smallest(sorted(positive, key=lambda group: -group[0]), weight, rng)


def _any(groups: Sequence[Members[Member]], rng: Random) -> Member:
    return rng.choices(groups, [len(members) for members in groups])[0].any(rng)


def _proportional(
    groups: Sequence[tuple[int, Members[Member]]], weight: Callable[[Member], float], rng: Random
) -> Member:
    bounds = list(accumulate(len(members) * 2.0**k for k, members in groups))
    while True:
        k, members = groups[0] if len(groups) == 1 else rng.choices(groups, cum_weights=bounds)[0]
        member = members.any(rng)
        if rng.random() * 2.0**k < weight(member):
            return member


def _smallest(
    groups: Sequence[tuple[int, Members[Member]]], weight: Callable[[Member], float], rng: Random
) -> Member:
    """`groups` by falling weight."""
    best, winner, heavy, drawn = math.inf, None, 0, 0
    while heavy < len(groups) and drawn + len(groups[heavy][1]) <= FEW:
        for member in groups[heavy][1]:
            value = rng.random() / weight(member)
            if value < best or winner is None:
                best, winner = value, member
        drawn += len(groups[heavy][1])
        heavy += 1
    light = groups[heavy:]
    if light:
        limit = 0.5 / 2.0 ** light[0][0]
        first = _thinned(light, weight, min(best, limit), rng)
        if first is not None:
            return first
        if best > limit:
            return _one_by_one(light, weight, limit, best, winner, rng)
    assert winner is not None
    return winner


def _thinned(
    groups: Sequence[tuple[int, Members[Member]]],
    weight: Callable[[Member], float],
    until: float,
    rng: Random,
) -> Member | None:
    """Who comes up first before `until`, which is at most half of every end; None if nobody does."""
    bounds = list(accumulate(len(members) * 2.0**k for k, members in groups))
    rate, at = 2 * bounds[-1], 0.0
    while True:
        at -= math.log1p(-rng.random()) / rate
        if at >= until:
            return None
        k, members = groups[0] if len(groups) == 1 else rng.choices(groups, cum_weights=bounds)[0]
        member = members.any(rng)
        its = weight(member)
        if rng.random() * 2 * 2.0**k * (1 - its * at) < its:
            return member


def _one_by_one(
    groups: Sequence[tuple[int, Members[Member]]],
    weight: Callable[[Member], float],
    after: float,
    best: float,
    winner: Member | None,
    rng: Random,
) -> Member:
    """Nobody of `groups` has come up until `after`: the smallest of what is left to them, or `winner` at `best`."""
    for _, members in groups:
        for member in members:
            low = weight(member) * after
            value = (low + rng.random() * (1 - low)) / weight(member)
            if value < best or winner is None:
                best, winner = value, member
    assert winner is not None
    return winner
