"""Compares use with the use that the draw rule gives if every entity always has waiting jobs.

The document's draw is not proportional and its corrections settle off the target
(docs/reference/rules.md, sections 3 and 5). For shares 3:1 and
one queue each, use settles at .790, not .75. So use must not be compared with the shares. `expected_use` computes the
point where use settles, under stated assumptions. `bound` is the distance from it that chance explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby

from pilotage.core.queues.draws import Rule
from pilotage.core.queues.rank import win_probability
from pilotage.core.shares.corrector import CorrectorInstance

STEPS = 80
SETTLED = 1e-5

SYSTEMATIC = 0.01
"""Distance from the expectation that the ratio form leaves for jobs of equal lengths, and use without correction."""
SYSTEMATIC_INTEGRAL = 0.02
"""The same for the integral form and jobs of any lengths."""


class FairnessVerdict(StrEnum):
    WITHIN = "within"
    BELOW = "below"
    ABOVE = "above"
    LESS_DEMAND = "less demand"
    """Below its part, but it did not always have waiting jobs."""
    ROOM_LEFT = "room left"
    """Above its part, while another one had less demand."""
    TOO_FEW = "too few attempts"
    """Too few attempts: chance could explain even no use at all."""


def expected_use(
    shares: Mapping[str, float], rule: Rule, instances: Sequence[CorrectorInstance] = ()
) -> dict[str, float]:
    """The part of all use at which each entity of `shares` settles.

    Assumes one task queue each in one CPU bucket, jobs of equal lengths, all always waiting. `instances` correct
    between them, in the order of their correctors.
    """
    total = sum(shares.values())
    if total <= 0:
        return dict.fromkeys(shares, 1 / len(shares)) if shares else {}
    entitled = {name: share / total for name, share in shares.items()}
    if rule == "proportional" or reaches_shares(instances):
        return entitled
    used = dict(entitled)
    for _ in range(STEPS):
        drawn = _drawn(shares, used, rule, instances)
        furthest = max(abs(drawn[name] - used[name]) for name in used)
        # Half steps: a full step overshoots, since a correction works against its own effect.
        used = {name: (used[name] + drawn[name]) / 2 for name in used}
        if furthest < SETTLED:
            break
    return used


def reaches_shares(instances: Iterable[CorrectorInstance]) -> bool:
    """Whether one of the instances makes use settle at the shares."""
    return any(instance.reaches_shares for instance in instances)


def _drawn(
    shares: Mapping[str, float],
    used: Mapping[str, float],
    rule: Rule,
    instances: Sequence[CorrectorInstance],
) -> dict[str, float]:
    weights = dict(shares)
    # As `correct` does: each corrector on the shares after the one before, its instances on the same shares.
    for _, group in groupby(instances, key=type):
        before, total = dict(weights), sum(weights.values())
        for instance in group:
            for name in weights:
                weights[name] *= instance.factor_at_rest(before[name] / total, used[name])
    return {
        name: win_probability(weight, (other for rival, other in weights.items() if rival != name), rule)
        for name, weight in weights.items()
    }


def bound(expected: float, starts: int, instances: Iterable[CorrectorInstance] = ()) -> float:
    """How far use may be from `expected`: the rule's own error plus three standard deviations of `starts` draws."""
    systematic = SYSTEMATIC_INTEGRAL if reaches_shares(instances) else SYSTEMATIC
    return min(1.0, systematic + 3 * math.sqrt(expected * (1 - expected) / max(1, starts)))


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals.

    >>> covered([(0, 10), (5, 12), (20, 21), (30, 25)])
    13.0
    """
    length, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        begin = max(begin, reached)
        if end > begin:
            length += end - begin
            reached = end
    return length


def judge(
    used: Mapping[str, float],
    expected: Mapping[str, float],
    bounds: Mapping[str, float],
    demand: Mapping[str, bool],
) -> dict[str, FairnessVerdict]:
    """The verdict on each entity. `demand`: whether the entity had waiting jobs all the time."""
    room = any(used[name] < expected[name] and not demand[name] for name in used)
    verdicts = {}
    for name in used:
        off = used[name] - expected[name]
        if bounds[name] >= expected[name]:
            verdicts[name] = FairnessVerdict.TOO_FEW
        elif abs(off) <= bounds[name]:
            verdicts[name] = FairnessVerdict.WITHIN
        elif off < 0:
            verdicts[name] = FairnessVerdict.BELOW if demand[name] else FairnessVerdict.LESS_DEMAND
        else:
            verdicts[name] = FairnessVerdict.ROOM_LEFT if room else FairnessVerdict.ABOVE
    return verdicts
