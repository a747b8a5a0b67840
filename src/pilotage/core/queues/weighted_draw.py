"""Draws among many by weight (docs/reference/rules.md, section 3), at a cost that does not grow with their number.

document: a runner of weight w arrives at `rand() / w`. proportional: at `-ln(rand()) / w`. A runner of weight 0
never arrives; if all weights are 0, each runner is equally likely. A draw is the smallest of independent times. So the
winner among some runners can be compared with the others by its time. If a winner may not be taken, the draw among the
other runners continues from its time (`draw_after`). Both are exact.

The document's times are drawn by thinning (Lewis and Shedler, 1979). A runner that has not arrived by x arrives there
at the rate w / (1 - w·x). Up to a fraction f of the smallest end 1/w, this rate is at most w / (1 - f). So candidates
are drawn at the rate (sum of weights) / (1 - f), each by its weight. A candidate is accepted with the chance
(1 - f) / (1 - w·x).

The heaviest runners have the shortest ends. They are drawn separately where too few others arrive before their end. In
the rare case that no other runner has arrived by the fraction f, every runner's time is drawn.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.draws import Rule

FEW = 8
"""Maximum number of the heaviest runners that are drawn separately."""

ENOUGH = 6.0
"""Expected arrivals among the runners drawn together, before every runner's time is drawn."""

MOST = 0.5
"""Largest fraction of the smallest end up to which runners are drawn together."""

Floats = NDArray[np.float64]

_log = math.log


class Sampler:
    """Runners whose weights stay as they are, for any number of draws."""

    __slots__ = ("_alone", "_bounds", "_light", "_limit", "_places", "_rule", "_sure", "_total", "_weights")

    def __init__(self, weights: Floats, rule: Rule) -> None:
        """`weights` must not be empty, and not be changed."""
        self._rule: Rule = rule
        self._weights = weights
        self._places: Sequence[int] | None = None
        """Indices of the runners drawn together; None: all."""
        self._alone: list[tuple[int, float]] = []
        light = weights
        if not weights.min() > 0:
            positive = np.flatnonzero(weights > 0)
            light, self._places = weights[positive], positive.data
        bounds = light.cumsum()
        if rule == "dirac" and len(light) and bounds[-1] * MOST < ENOUGH * light.max():
            light = self._set_apart(light)
            bounds = light.cumsum()
        self._light = light.data
        self._bounds = bounds[:-1].data
        self._total, self._sure, self._limit = 0.0, 1.0, 0.0
        if len(light):
            self._total, heaviest = float(bounds[-1]), float(light.max())
            part = min(MOST, ENOUGH * heaviest / self._total)
            self._sure, self._limit = 1.0 - part, part / heaviest

    def _set_apart(self, weights: Floats) -> Floats:
        """Separate as few of the heaviest runners as possible, at least one; return the weights of the rest."""
        few = min(FEW, len(weights))
        heaviest = np.argpartition(weights, -few)[-few:].tolist()
        heaviest.sort(key=weights.item, reverse=True)
        total, alone = float(weights.sum()), 0
        while alone < few and (not alone or total * MOST < ENOUGH * weights.item(heaviest[alone])):
            total -= weights.item(heaviest[alone])
            alone += 1
        together = np.ones(len(weights), dtype=np.bool_)
        together[heaviest[:alone]] = False
        places = self._places
        self._alone = [
            (index if places is None else places[index], weights.item(index)) for index in heaviest[:alone]
        ]
        others = together.nonzero()[0]
        self._places = (others if places is None else np.asarray(places)[others]).data
        return weights[others]

    def draw(self, chance: Random, numbers: np.random.Generator) -> tuple[int, float]:
        """The winner of one draw, by its place in the weights, and its time: infinite where no weight is positive.

        `numbers` is used only where every runner's time is drawn.
        """
        if self._rule == "proportional":
            return self._draw_proportional(chance)
        winner, time, random = -1, math.inf, chance.random
        for place, weight in self._alone:
            at = random() / weight
            if at < time or winner < 0:
                winner, time = place, at
        total = self._total
        if not total:
            return (winner, time) if winner >= 0 else (chance.randrange(len(self._weights)), math.inf)
        light, bounds, limit, sure = self._light, self._bounds, self._limit, self._sure
        at, end, mean = 0.0, limit if limit < time else time, sure / total
        while True:
            at -= _log(1.0 - random()) * mean
            if at >= end:
                break
            # The last bound is left out: a number that is rounded up to it finds the last place.
            place = bisect_right(bounds, random() * total)
            if random() * (1.0 - light[place] * at) < sure:
                return (place if self._places is None else self._places[place]), at
        if time <= limit:
            return winner, time
        # Nobody has arrived by then.
        place, at = draw_after(np.asarray(light), "dirac", numbers, limit)
        if at < time or winner < 0:
            return (place if self._places is None else self._places[place]), at
        return winner, time

    def _draw_proportional(self, chance: Random) -> tuple[int, float]:
        total = self._total
        if not total:
            return chance.randrange(len(self._weights)), math.inf
        place = bisect_right(self._bounds, chance.random() * total)
        at = -_log(1.0 - chance.random()) / total
        return (place if self._places is None else self._places[place]), at


def draw_after(weights: Floats, rule: Rule, numbers: np.random.Generator, begun: float) -> tuple[int, float]:
    """The winner of one draw, and its time, if no runner has arrived by `begun`."""
    if math.isinf(begun) or not (weights > 0).any():
        return int(numbers.integers(len(weights))), math.inf
    with np.errstate(divide="ignore"):
        if rule == "proportional":
            times = begun + numbers.standard_exponential(len(weights)) / weights
        else:
            low = np.minimum(weights * begun, 1.0)
            times = (low + numbers.random(len(weights)) * (1.0 - low)) / weights
    times[weights <= 0] = np.inf
    place = int(times.argmin())
    return place, float(times[place])
