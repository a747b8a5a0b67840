"""Chances and places in the draw, against the draw itself."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from pilotage.core.ids import QueueId
from pilotage.core.queues.draws import RULES, Rule, draw_class
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.rank import RIVALS, rank, win_probability
from tests.unit.core.queues.chance import assert_shares

SETS = [
    (1.0,),
    (1.0, 3.0),
    (2.0, 2.0, 2.0),
    (1.0, 2.0, 5.0, 5.0, 40.0),
    (0.0, 1.0, 4.0),
    (0.0, 0.0, 0.0),
    (20.0, *[1.0] * 20),
]


def chances(priorities: tuple[float, ...], rule: Rule) -> list[float]:
    return [
        win_probability(one, [*priorities[:place], *priorities[place + 1 :]], rule)
        for place, one in enumerate(priorities)
    ]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("priorities", SETS)
def test_chances_are_those_of_the_draw(priorities: tuple[float, ...], rule: Rule) -> None:
    expected = chances(priorities, rule)
    assert math.isclose(sum(expected), 1, abs_tol=1e-9)
    rng, counts = Random(7), Counter[int]()
    for _ in range(8000):
        counts[draw_class([(one, 1) for one in priorities], rule, rng)] += 1
    assert_shares(counts, dict(enumerate(expected)))


def test_the_worked_examples_of_the_document() -> None:
    assert win_probability(1.0, [3.0], "dirac") == pytest.approx(1 / 6)
    assert win_probability(3.0, [1.0], "dirac") == pytest.approx(5 / 6)
    assert win_probability(1.0, [3.0], "proportional") == 0.25
    assert 20 * win_probability(1.0, [20.0, *[1.0] * 19], "dirac") == pytest.approx(
        1 - 20 / 21 * (1 - 0.95**21)
    )


@pytest.mark.parametrize("rule", RULES)
def test_thousands_of_queues_add_up_to_one(rule: Rule) -> None:
    rng = Random(3)
    priorities = tuple(rng.choice([0.01, 1.0, 7.0, 1000.0, rng.random()]) for _ in range(300))
    assert math.isclose(sum(chances(priorities, rule)), 1, abs_tol=1e-6)
    many = [1.0 + place / 10_000 for place in range(5000)]
    assert win_probability(1.25, many, rule) == pytest.approx(1.25 / (sum(many) + 1.25), rel=0.01)


def entry(number: int, owner: str, priority: float, *, cpu_time: int = 500, waiting: int = 1) -> IndexedQueue:
    identity = QueueIdentity(owner, "physics", cpu_time=cpu_time)
    return IndexedQueue(QueueId(number), identity, (owner, "physics"), priority=priority, waiting=waiting)


def test_entities_are_compared_by_the_sum_of_their_queues() -> None:
    ours = entry(1, "alice", 100.0)
    others = [
        entry(2, "alice", 150.0),
        entry(3, "bob", 300.0, waiting=7),
        entry(4, "bob", 200.0, waiting=5),
        entry(5, "carol", 10.0),
        entry(6, "dan", 250.0),
    ]
    found = rank(ours, [ours, *others], "proportional")
    assert (found.ours, found.ahead, found.queues) == (250.0, 1, 6)
    assert [(r.owner, r.priority, r.ratio, r.waiting) for r in found.rivals] == [
        ("bob", 500.0, 2.0, 12),
        ("dan", 250.0, 1.0, 1),
        ("carol", 10.0, 0.04, 1),
    ]
    assert found.chance == pytest.approx(100 / 1010)
    assert found.buckets == ()


def test_under_the_documents_rule_higher_buckets_go_first_and_lower_ones_do_not_count() -> None:
    ours = entry(1, "alice", 100.0, cpu_time=5000)
    others = [
        entry(2, "bob", 100.0, cpu_time=50000, waiting=4),
        entry(3, "carol", 100.0, cpu_time=50000, waiting=6),
        entry(4, "dan", 100.0, cpu_time=300000, waiting=1),
        entry(5, "eve", 900.0, cpu_time=500),
        entry(6, "bob", 300.0, cpu_time=5000),
    ]
    found = rank(ours, [ours, *others], "dirac")
    assert [(b.cpu_time, b.queues, b.jobs) for b in found.buckets] == [(300000, 1, 1), (50000, 2, 10)]
    assert (found.queues, found.chance) == (2, pytest.approx(1 / 6))
    assert [rival.owner for rival in found.rivals] == ["bob"]
    assert rank(ours, others, "proportional").buckets == ()


def test_only_the_largest_rivals_are_named() -> None:
    ours = entry(1, "alice", 1.0)
    others = [entry(number, f"user{number}", float(number)) for number in range(2, 20)]
    found = rank(ours, others, "proportional")
    assert [rival.priority for rival in found.rivals] == [19.0, 18.0, 17.0, 16.0, 15.0]
    assert (len(found.rivals), found.ahead) == (RIVALS, 18)
