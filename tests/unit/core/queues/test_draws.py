"""The two draw rules, exactly (docs/reference/rules.md, section 3)."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from pilotage.core.queues.draws import RULES, Rule, draw_class, smallest_of
from tests.unit.core.queues.chance import assert_alike, assert_shares

DRAWS = 20_000


def plain(weights: list[float], rule: Rule, rng: Random) -> int:
    """The rule as the document says it: one draw for each, the smallest wins."""
    values = []
    for weight in weights:
        u = rng.random()
        drawn = u if rule == "dirac" else -math.log(1 - u)
        values.append(drawn / weight if weight else math.inf)
    best = min(values)
    return rng.choice([place for place, value in enumerate(values) if value == best])


def drawn(classes: list[tuple[float, int]], rule: Rule, seed: int = 1, draws: int = DRAWS) -> Counter[int]:
    rng = Random(seed)
    return Counter(draw_class(classes, rule, rng) for _ in range(draws))


def document_shares(classes: list[tuple[float, int]]) -> dict[int, float]:
    """P(a class holds the smallest u/w), by integration: a member of weight w wins at x < 1/w with density w."""
    top, steps = min(1 / weight for weight, _ in classes), 20_000
    shares = dict.fromkeys(range(len(classes)), 0.0)
    for step in range(steps):
        x = (step + 0.5) * top / steps
        all_later = math.prod((1 - weight * x) ** count for weight, count in classes)
        for place, (weight, count) in enumerate(classes):
            shares[place] += count * weight * all_later / (1 - weight * x) * top / steps
    total = sum(shares.values())
    assert math.isclose(total, 1, abs_tol=1e-3)
    return {place: share / total for place, share in shares.items()}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([(1, 1), (3, 1)], (1 / 6, 5 / 6)),
        ([(1, 1), (2, 1)], (1 / 4, 3 / 4)),
        ([(1, 4), (4, 1)], (1 - 0.8 * (1 - 0.75**5), 0.8 * (1 - 0.75**5))),  # simulated once: .613
        ([(1, 20), (20, 1)], (1 - 20 / 21 * (1 - 0.95**21), 20 / 21 * (1 - 0.95**21))),  # .372, .628
    ],
)
def test_the_documents_rule_gives_the_known_unproportional_shares(
    classes: list[tuple[float, int]], expected: tuple[float, float]
) -> None:
    exact = document_shares(classes)
    assert all(math.isclose(exact[place], share, abs_tol=1e-3) for place, share in enumerate(expected))
    assert_shares(drawn(classes, "dirac"), exact)


def test_four_queues_of_weight_one_against_one_of_four() -> None:
    exact = document_shares([(1.0, 1)] * 4 + [(4.0, 1)])
    assert_shares(drawn([(1.0, 1)] * 4 + [(4.0, 1)], "dirac"), exact)


@pytest.mark.parametrize(
    "classes", [[(1, 1), (3, 1)], [(1, 20), (20, 1)], [(0.5, 3), (2, 5), (7, 1)], [(1e-3, 1000), (1, 1)]]
)
def test_the_proportional_rule_is_exactly_proportional(classes: list[tuple[float, int]]) -> None:
    total = sum(weight * count for weight, count in classes)
    shares = {place: weight * count / total for place, (weight, count) in enumerate(classes)}
    assert_shares(drawn(classes, "proportional"), shares)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "classes", [[(1, 3), (2, 2)], [(0, 2), (1, 2), (5, 1)], [(10, 1), (1, 10)], [(0, 3)]]
)
def test_one_draw_for_each_class_equals_one_for_each_member(
    rule: Rule, classes: list[tuple[float, int]]
) -> None:
    members = [place for place, (_, count) in enumerate(classes) for _ in range(count)]
    weights = [classes[place][0] for place in members]
    rng = Random(7)
    one_by_one = Counter(members[plain(weights, rule, rng)] for _ in range(DRAWS))
    assert_alike(drawn(classes, rule), one_by_one)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 10, 1000])
def test_the_smallest_of_many_draws_has_the_right_distribution(rule: Rule, count: int) -> None:
    """By deciles of the exact distribution function of the minimum."""
    weight, rng, tenths = 3.0, Random(count), Counter[int]()
    for _ in range(DRAWS):
        value = smallest_of(count, weight, rule, rng)
        below = (
            1 - (1 - value * weight) ** count if rule == "dirac" else 1 - math.exp(-count * weight * value)
        )
        tenths[min(9, int(below * 10))] += 1
    assert_shares(tenths, dict.fromkeys(range(10), 0.1))


@pytest.mark.parametrize("rule", RULES)
def test_no_weight_loses_against_the_smallest_positive_one(rule: Rule) -> None:
    assert drawn([(0.0, 10**9), (1e-9, 1)], rule, draws=500) == {1: 500}


@pytest.mark.parametrize("rule", RULES)
def test_without_any_weight_all_members_are_equally_likely(rule: Rule) -> None:
    assert_shares(drawn([(0.0, 1), (0.0, 3)], rule), {0: 0.25, 1: 0.75})


@pytest.mark.parametrize("rule", RULES)
def test_a_single_class_needs_no_chance(rule: Rule) -> None:
    rng = Random(1)
    before = rng.getstate()
    assert draw_class([(0.0, 5)], rule, rng) == 0
    assert rng.getstate() == before
