"""Weighted draws among many give each runner the chance of the plain rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.queues import weighted_draw as module
from pilotage.core.queues.draws import RULES, Rule
from pilotage.core.queues.rank import win_probability
from pilotage.core.queues.weighted_draw import Sampler, draw_after
from tests.unit.core.queues.chance import assert_shares

DRAWS = 40_000
WEIGHTS = {
    "one": [3.0],
    "two": [1.0, 3.0],
    "all different": [1 + 0.37 * k for k in range(60)],
    "one heavy, many light": [20.0, *[1.0] * 20, *[0.3] * 30],
    "few heavy and light ones that seldom come up": [*[1000.0] * 40, *[1.0] * 50],
    "over many classes": [2.0**k for k in range(-20, 20)],
    "equal": [1.0] * 50,
    "with some of nothing": [0.0, 0.0, 1.0, 2.0, 5.0],
    "of nothing": [0.0] * 5,
}


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def runs(weights: Sequence[float], rule: Rule, name: str, count: int) -> tuple[list[int], list[float]]:
    """The winners and times of so many draws."""
    race, chance, numbers = Sampler(np.array(weights), rule), Random(name), generator(name)
    places, times = zip(*(race.draw(chance, numbers) for _ in range(count)), strict=True)
    return list(places), list(times)


def expected_of(weights: list[float], rule: Rule) -> dict[object, float]:
    return {
        place: win_probability(w, weights[:place] + weights[place + 1 :], rule)
        for place, w in enumerate(weights)
    }


def assert_by_rule(found: Counter[int], expected: dict[object, float], draws: int) -> None:
    """The rare ones are counted as one."""
    counts: Counter[object] = Counter()
    shares: Counter[object] = Counter()
    for place, share in expected.items():
        key = "rare" if share * draws < 5 else place
        counts[key] += found[place]  # type: ignore[index]
        shares[key] += share  # type: ignore[assignment]
    if "rare" in shares and shares["rare"] * draws < 5:
        assert counts.pop("rare") <= 20
        del shares["rare"]
    assert_shares(counts, {key: share / shares.total() for key, share in shares.items()})


@pytest.mark.parametrize(
    ("few", "enough"),
    [
        (module.FEW, module.ENOUGH),
        pytest.param(1, 0.5, marks=pytest.mark.slow),
        pytest.param(40, 100.0, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_chances_are_those_of_the_rule(
    name: str, rule: Rule, few: int, enough: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With 1 hardly anybody runs by himself, and they often run on one by one; with 40 most of them do.
    monkeypatch.setattr(module, "FEW", few)
    monkeypatch.setattr(module, "ENOUGH", enough)
    weights = WEIGHTS[name]
    places, times = runs(weights, rule, f"{name} {rule}", DRAWS)
    assert_by_rule(Counter(places), expected_of(weights, rule), DRAWS)
    assert np.isinf(times).all() == (not any(weights))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["all different", "one heavy, many light", "two", "equal"])
def test_the_winners_times_are_distributed_like_the_smallest_draw(name: str, rule: Rule) -> None:
    """Their quantiles against the plain rule, which draws for each and takes the smallest."""
    rng, weights = generator(name), np.array(WEIGHTS[name])
    uniform = rng.random((DRAWS, len(weights)))
    plain = (uniform if rule == "dirac" else -np.log1p(-uniform)) / weights
    _, times = runs(WEIGHTS[name], rule, name, DRAWS)
    low, high = np.sort(plain.min(axis=1)), np.sort(times)
    # Kolmogorov and Smirnov: the largest distance between the two distributions, once in 10^5 tests.
    together = np.concatenate([low, high])
    distance = np.abs(
        np.searchsorted(low, together, side="right") - np.searchsorted(high, together, side="right")
    )
    assert distance.max() / DRAWS < 2.47 * (2 / DRAWS) ** 0.5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gone", [0, 1, 5])
def test_a_winner_who_may_not_be_taken_leaves_the_race_to_the_others(rule: Rule, gone: int) -> None:
    weights = [20.0, 8.0, *[1 + 0.1 * k for k in range(40)]]
    rng, draws = generator(f"{rule} {gone}"), 10_000
    array = np.array(weights)
    left = np.delete(np.arange(len(weights)), gone)
    found: Counter[int] = Counter()
    for place, time in zip(*runs(weights, rule, f"{rule} {gone}", draws), strict=True):
        if place == gone:
            place = left[draw_after(array[left], rule, rng, time)[0]]
        found[int(place)] += 1
    others = [weights[place] for place in left]
    chances = expected_of(others, rule)
    assert_by_rule(found, {int(left[place]): share for place, share in chances.items()}, draws)  # type: ignore[call-overload]


@pytest.mark.parametrize("rule", RULES)
def test_a_later_runner_races_against_the_winner(rule: Rule) -> None:
    weights, late = [3.0, 1.0, 2.5, 0.5], [4.0, 0.2]
    rng, draws = generator(rule), 10_000
    found: Counter[int] = Counter()
    for place, time in zip(*runs(weights, rule, rule, draws), strict=True):
        other, its = draw_after(np.array(late), rule, rng, 0.0)
        found[int(place) if time < its else len(weights) + other] += 1
    assert_by_rule(found, expected_of(weights + late, rule), draws)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=60), st.sampled_from(RULES), st.integers(1, 9))
def test_the_winner_has_a_weight_if_any_runner_has(weights: list[float], rule: Rule, count: int) -> None:
    with np.errstate(over="ignore"):
        places, _ = runs(weights, rule, "any", count)
    for place in places:
        assert weights[place] > 0 or not any(weights)
