"""Draws among many different weights give each what the plain rule gives it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from chance import assert_shares
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.queues import weighted as module
from pilotage.core.queues.draws import RULES, Rule
from pilotage.core.queues.standing import chance
from pilotage.core.queues.weighted import NOTHING, Weighted, class_of, draw

DRAWS = 20_000
WEIGHTS = {
    "one": [3.0],
    "all different": [1 + 0.37 * k for k in range(60)],
    "one heavy, many light": [20.0, *[1.0] * 20, *[0.3] * 30],
    "few heavy and light ones that seldom come up": [*[1000.0] * 40, *[1.0] * 50],
    "over many classes": [2.0**k for k in range(-20, 20)],
    "equal": [1.0] * 50,
    "with some of nothing": [0.0, 0.0, 1.0, 2.0, 5.0],
    "of nothing": [0.0] * 5,
}


def pool_of(weights: list[float]) -> Weighted[int]:
    pool: Weighted[int] = Weighted()
    for member, weight in enumerate(weights):
        pool.add(member, class_of(weight))
    return pool


@pytest.mark.parametrize("few", [0, 32])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_chances_are_those_of_the_rule(
    name: str, rule: Rule, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With 0 nobody is drawn one by one at once, so that the light ones' ways are walked even where there are few.
    monkeypatch.setattr(module, "FEW", few)
    weights, rng = WEIGHTS[name], Random(f"{name} {rule}")
    pool = pool_of(weights)
    found = Counter(draw([pool], rule, weights.__getitem__, rng) for _ in range(DRAWS))
    expected = {
        member: chance(weight, weights[:member] + weights[member + 1 :], rule)
        for member, weight in enumerate(weights)
    }
    rare = {member for member, share in expected.items() if share * DRAWS < 5}
    counts: Counter[object] = Counter()
    shares: Counter[object] = Counter()
    for member, share in expected.items():
        key = "rare" if member in rare else member
        counts[key] += found[member]
        shares[key] += share  # type: ignore[assignment]
    if shares["rare"] * DRAWS < 5:
        counts["rest"] = counts.pop("rare", 0)
        assert counts.pop("rest") <= 20
        del shares["rare"]
    assert_shares(counts, {key: share / shares.total() for key, share in shares.items()})


@pytest.mark.parametrize("rule", RULES)
def test_several_pools_are_one(rule: Rule) -> None:
    weights, rng = [1.0, 2.0, 3.0, 10.0, 0.0], Random(7)
    pools = [Weighted[int]() for _ in weights]
    for member, weight in enumerate(weights):
        pools[member].add(member, class_of(weight))
    found = Counter(draw(pools, rule, weights.__getitem__, rng) for _ in range(DRAWS))
    assert_shares(
        found,
        {m: chance(w, weights[:m] + weights[m + 1 :], rule) for m, w in enumerate(weights)},
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1e300)), max_size=40), st.sampled_from(RULES))
def test_who_comes_and_goes_is_drawn_or_not(moves: list[tuple[int, float]], rule: Rule) -> None:
    pool, weights, rng = Weighted[int](), dict[int, float](), Random(1)
    for member, weight in moves:
        if member in weights:
            assert pool.discard(member, class_of(weights.pop(member)))
        else:
            weights[member] = weight
            pool.add(member, class_of(weight))
        assert bool(pool) == bool(weights)
        if weights:
            drawn = draw([pool], rule, weights.__getitem__, rng)
            assert weights[drawn] > 0 or not any(weights.values())
    assert not pool.discard(99, 0)


@given(st.floats(0, allow_infinity=False))
def test_a_weight_lies_between_half_its_bound_and_the_bound(weight: float) -> None:
    k = class_of(weight)
    assert k == NOTHING if weight == 0 else 0.5 <= weight / 2.0 ** (k - 1) / 2 < 1
