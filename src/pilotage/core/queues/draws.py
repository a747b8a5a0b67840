"""The two draw rules (docs/reference/rules.md, section 3), at a cost of the number of distinct weights.

document: of all candidates the smallest `rand() / weight`. Not proportional: weights 1 and 3 give .167 and .833.
proportional: the smallest `-ln(rand()) / weight`, which gives each candidate its weight's part exactly.

The minimum of n independent draws of one weight has a known distribution, so one random number per distinct weight
is enough. Within the winning class every member is equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Literal

Rule = Literal["dirac", "proportional"]
RULES: tuple[Rule, ...] = ("dirac", "proportional")


def orders_strictly(rule: Rule) -> bool:
    """Whether a higher UserPriority of an owner goes first. If not, it is a weight in a draw, as in the document."""
    return rule != "dirac"


FIRST = 10
"""The number of lowest ids among which a job is drawn, at the drawn UserPriority ("DIRAC Task Queue Matching")."""


def smallest_of(count: int, weight: float, rule: Rule, rng: Random) -> float:
    """The smallest of `count` draws of `weight` > 0 under `rule`."""
    u = rng.random()
    if rule == "proportional":
        return -math.log1p(-u) / (count * weight)
    return -math.expm1(math.log1p(-u) / count) / weight


def draw_class(classes: Sequence[tuple[float, int]], rule: Rule, rng: Random) -> int:
    """Which of `classes` (weight, number of members) holds the winner.

    A weight of 0 is infinity in a draw: it loses against every positive one. If all weights are 0, every member
    is equally likely. Classes without members must be left out; `classes` must not be empty.
    """
    if len(classes) == 1:
        return 0
    best, winner = math.inf, -1
    for place, (weight, count) in enumerate(classes):
        if weight > 0:
            value = smallest_of(count, weight, rule, rng)
            if value < best:
                best, winner = value, place
    if winner >= 0:
        return winner
    return rng.choices(range(len(classes)), [count for _, count in classes])[0]
