"""Draws among many by weight, made in numbers (RULES 3): the runners' times, the smallest of which wins.

document: a runner of weight w arrives at `rand() / w`. proportional: at `-ln(rand()) / w`. A runner of weight 0
never arrives; if all are such, each is equally likely. Since a draw is the smallest of independent times, the winner
of a part of the field goes on against the others by its time, and a winner who may not be taken leaves a race among
the others that goes on from there (`after`): both are exact.

The document's times are drawn in bulk by thinning (Lewis and Shedler, 1979). A runner that has not arrived by x
arrives there at the rate w / (1 - w·x), which below half of the smallest end 1/w is at most 2w. So candidates come
at the rate of twice all weights, each by its weight, and is taken with the chance 1 / (2 (1 - w·x)), which is at least
a half. The few heaviest, whose ends are the short ones, run by themselves. Where nobody of the others has arrived by
that half, which is rare as soon as there are many, they run on one by one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.draws import Rule

FEW = 32
"""So many of the heaviest run by themselves under the document's rule."""

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


def race(weights: Floats, rule: Rule, rng: np.random.Generator, count: int) -> tuple[Places, Floats]:
    """The winners of `count` draws among all, by their place in `weights` (not empty), and their times.

    The time is infinite where no weight is positive.
    """
    positive = np.flatnonzero(weights > 0)
    if not len(positive):
        return rng.integers(len(weights), size=count), np.full(count, np.inf)
    if len(positive) == len(weights):
        return _race(weights, rule, rng, count)
    places, times = _race(weights[positive], rule, rng, count)
    return positive[places], times


def after(weights: Floats, rule: Rule, rng: np.random.Generator, begun: float) -> tuple[int, float]:
    """The winner of one draw among runners none of whom has arrived by `begun`, and its time."""
    if math.isinf(begun) or not (weights > 0).any():
        return int(rng.integers(len(weights))), math.inf
    with np.errstate(divide="ignore"):
        if rule == "proportional":
            times = begun + rng.standard_exponential(len(weights)) / weights
        else:
            low = np.minimum(weights * begun, 1.0)
            times = (low + rng.random(len(weights)) * (1.0 - low)) / weights
    times[weights <= 0] = np.inf
    place = int(times.argmin())
    return place, float(times[place])


def _race(weights: Floats, rule: Rule, rng: np.random.Generator, count: int) -> tuple[Places, Floats]:
    """As `race`, all weights positive."""
    if rule == "proportional":
        bounds = weights.cumsum()
        places = bounds.searchsorted(rng.random(count) * bounds[-1], side="right")
        return np.minimum(places, len(weights) - 1), rng.standard_exponential(count) / bounds[-1]
    if len(weights) <= FEW:
        return _one_by_one(weights, rng, count)
    heavy = np.argpartition(weights, len(weights) - FEW)
    light, heavy = heavy[:-FEW], heavy[-FEW:]
    places, times = _one_by_one(weights[heavy], rng, count)
    places = heavy[places]
    others = weights[light]
    limit = 0.5 / others.max()
    first, at = _thinned(others, limit, times, rng)
    came = first >= 0
    places[came], times[came] = light[first[came]], at[came]
    # Nobody of the light ones has arrived by `limit`, nor any of the heavy ones.
    for draw in np.flatnonzero(~came & (times > limit)):
        place, time = after(others, rule, rng, limit)
        if time < times[draw]:
            places[draw], times[draw] = light[place], time
    return places, times


def _one_by_one(weights: Floats, rng: np.random.Generator, count: int) -> tuple[Places, Floats]:
    times = rng.random((count, len(weights))) / weights
    places = times.argmin(axis=1)
    return places, times[np.arange(count), places]


def _thinned(weights: Floats, limit: float, until: Floats, rng: np.random.Generator) -> tuple[Places, Floats]:
    """Of each draw: who arrives first before `limit` and before `until`, and when; -1 where nobody does."""
    count = len(until)
    bounds = weights.cumsum()
    total = bounds[-1]
    ends = np.minimum(until, limit)
    winners, at = np.full(count, -1, dtype=np.int64), np.zeros(count)
    running = np.arange(count)
    while len(running):
        at[running] += rng.standard_exponential(len(running)) / (2.0 * total)
        running = running[at[running] < ends[running]]
        here = at[running]
        places = bounds.searchsorted(rng.random(len(running)) * total, side="right")
        places = np.minimum(places, len(weights) - 1)
        taken = rng.random(len(running)) * 2.0 * (1.0 - weights[places] * here) < 1.0
        winners[running[taken]] = places[taken]
        running = running[~taken]
    return winners, at
