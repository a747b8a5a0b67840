"""Where shares settle: a simulated month of the real index, ledger and correctors, 3:1, always waiting.

What is used settles where the rule of the draw and the correction together have their fixed point, which is solved
here as well. The bounds that are asserted are three standard deviations of the simulated jobs or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import pytest

from pilotage.core.ids import QueueId
from pilotage.core.queues.draws import Rule
from pilotage.core.queues.fairness import FairnessVerdict, bound, expected_use, judge
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.shares.correctors.half_life import HalfLifeInstance
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, HistoryInstance
from pilotage.core.shares.priorities import Priorities
from pilotage.core.shares.use import DAY, HOUR, Unit
from tests.unit.core.shares.simulated_pool import ENDLESS, OFFER, PERIODS, Flow, Pool

WEEK = 7 * DAY
SHARES = {"major": 3000.0, "minor": 1000.0}
ENTITLED = 0.75

DOCUMENT = HistoryInstance(
    max_global_correction_factor=3,
    slices={
        "Week": CorrectionSlice(time_span=WEEK, weight=80, max_correction=2),
        "Hour": CorrectionSlice(time_span=HOUR, weight=20, max_correction=5),
    },
)
HIGHEST = 0.8 * 2 + 0.2 * 5
LOWEST = 0.8 / 2 + 0.2 / 5
"""What the document's slices allow as a correction."""


def integral(span: float, unit: Unit = "jobs", most: float = 10.0) -> HistoryInstance:
    """With the default gain. One slice, longer than jobs are: a shorter one would not see what it has done."""
    return HistoryInstance(
        form="integral",
        unit=unit,
        max_global_correction_factor=most,
        slices={"Slice": CorrectionSlice(time_span=span, max_correction=most)},
    )


def pool(
    major: Flow, minor: Flow, rule: Rule, instance: HistoryInstance | None, *, slots: int = 50, seed: int = 1
) -> Pool:
    instances = {} if instance is None else {"Groups": instance}
    return Pool({"major": major, "minor": minor}, SHARES, rule, instances, slots=slots, seed=seed)


# --- the document's rule


def chance_to_win(one: float, other: float) -> float:
    """That U/one is the smaller of two draws of the document's rule."""
    return 1 - other / (2 * one) if one >= other else one / (2 * other)


def fixed_point(chance: Callable[[float, float], float]) -> float:
    """The part of the major group under which priorities, corrected by the ratio, lead to that same part."""
    low, high = 0.01, 0.99
    while high - low > 1e-12:
        part = (low + high) / 2
        major = SHARES["major"] * ENTITLED / part
        minor = SHARES["minor"] * (1 - ENTITLED) / (1 - part)
        low, high = (part, high) if chance(major, minor) > part else (low, part)
    return low


def test_fairness_check_expects_the_fixed_point() -> None:
    """For r = p2/p1 = (1/9)·u/(1-u) the document's draw gives u = 1 - r/2, so 18(1-u)² = u."""
    exact = (37 - math.sqrt(73)) / 36
    assert fixed_point(chance_to_win) == pytest.approx(exact, abs=1e-9)
    shares = {"major": 3.0, "minor": 1.0}
    assert expected_use(shares, "dirac", (DOCUMENT,))["major"] == pytest.approx(exact, abs=1e-4)
    assert expected_use(shares, "dirac")["major"] == pytest.approx(1 - 1 / 6, abs=1e-4)
    for instances in ((), (DOCUMENT,), (integral(DAY),), (DOCUMENT, HalfLifeInstance())):
        assert expected_use(shares, "proportional", instances) == {"major": 0.75, "minor": 0.25}
    assert expected_use(shares, "dirac", (integral(DAY),))["major"] == 0.75
    # Clamped: a correction of at most 1.1 cannot make up for what the draw does.
    weak = HistoryInstance(slices={"Day": CorrectionSlice(time_span=DAY, max_correction=1.1)})
    assert 0.8 < expected_use(shares, "dirac", (weak,))["major"] < 1 - 1 / 6
    assert expected_use({"a": 0.0, "b": 0.0}, "dirac") == {"a": 0.5, "b": 0.5}
    assert expected_use({}, "dirac") == {}


def test_verdicts_tell_apart_who_wanted_more() -> None:
    used, expected = {"a": 0.9, "b": 0.1}, {"a": 0.5, "b": 0.5}
    close = {"a": 0.05, "b": 0.05}
    always, never = {"a": True, "b": True}, {"a": True, "b": False}
    assert judge(used, expected, close, always) == {"a": FairnessVerdict.ABOVE, "b": FairnessVerdict.BELOW}
    assert judge(used, expected, close, never) == {
        "a": FairnessVerdict.ROOM_LEFT,
        "b": FairnessVerdict.LESS_DEMAND,
    }
    assert set(judge(expected, expected, close, never).values()) == {FairnessVerdict.WITHIN}
    assert set(judge(used, expected, {"a": 0.6, "b": 0.6}, always).values()) == {FairnessVerdict.TOO_FEW}
    assert bound(0.5, 100) == pytest.approx(0.01 + 3 * 0.05)
    assert bound(0.5, 0) == 1.0


@pytest.mark.slow
def test_without_correction_the_documents_rule_gives_five_sixths() -> None:
    found = pool(Flow(), Flow(), "dirac", None, slots=200).run(4)
    assert found.part("major", 0.5, 4) == pytest.approx(1 - 1 / 6, abs=0.01)


@pytest.mark.slow
def test_the_documents_rule_and_policy_settle_at_their_fixed_point() -> None:
    """One CPU bucket, one queue for each group: .790, not .750. The flood is one of jobs here."""
    found = pool(Flow(jobs=10**6), Flow(jobs=ENDLESS), "dirac", DOCUMENT, slots=60).run(30)
    assert found.part("major", 10, 30) == pytest.approx(fixed_point(chance_to_win), abs=0.01)
    assert found.part("major", 10, 30) > 0.77
    weeks = found.parts("major", 7)
    assert weeks[1:] == pytest.approx([0.790] * len(weeks[1:]), abs=0.015)


# --- the proportional rule


@pytest.mark.slow
def test_proportional_with_ratio_is_within_a_point_whoever_floods() -> None:
    """Equal lengths; the minor group has twenty times the queues and a thousand times the jobs."""
    found = pool(Flow(jobs=10**6), Flow(queues=20, jobs=ENDLESS), "proportional", DOCUMENT).run(30)
    assert found.part("major", 10, 30) == pytest.approx(ENTITLED, abs=0.01)
    assert found.parts("major", 7)[1:] == pytest.approx([ENTITLED] * 3, abs=0.015)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("major", "minor", "instance"),
    [
        pytest.param(Flow(), Flow(length=10 * HOUR, queues=10), integral(DAY), id="1 h, 10 h, a day"),
        pytest.param(Flow(), Flow(length=10 * HOUR), integral(2 * DAY), id="1 h, 10 h, two days"),
        pytest.param(Flow(length=10 * HOUR), Flow(queues=10), integral(2 * DAY), id="10 h, 1 h, two days"),
        pytest.param(Flow(), Flow(length=HOUR / 2, queues=10), integral(WEEK), id="1 h, 30 min, a week"),
        pytest.param(
            Flow(), Flow(length=3 * HOUR, cores=4), integral(DAY, "cores"), id="1 core, 4 cores, a day"
        ),
    ],
)
def test_proportional_with_integral_is_within_two_percent_whatever_the_lengths(
    major: Flow, minor: Flow, instance: HistoryInstance
) -> None:
    """And it comes to rest: after ten days no three days are far off, neither above nor below.

    The bounds must leave room: max_correction² and max_global_correction_factor² at least the ratio of what one job
    of either uses (12 and 10 here, of 100). With the defaults, 3, that is 9.
    """
    found = pool(major, minor, "proportional", instance, slots=60).run(30)
    assert found.part("major", 14, 30, instance.unit) == pytest.approx(ENTITLED, rel=0.02)
    later = found.parts("major", 3, instance.unit)[4:]
    assert max(abs(part - ENTITLED) for part in later) < 0.06, later
    inner = [factor for factors in found.factors[14 * PERIODS :] for factor in factors.values()]
    assert 1 / 10 < min(inner) <= max(inner) < 10, "held by its bounds, not at rest"


# --- nobody starves


@pytest.mark.parametrize("queues", [1, 99])
def test_a_queue_waits_no_longer_than_chance_has_it(queues: int) -> None:
    """P(not drawn in n draws) = (1-p)^n for a queue with the part p of the priority of all that fit.

    With corrections p is at least E·lowest/(Σ E·highest). Of 1000 waits here, the longest one is beyond
    n = ln(1000·10^6)/-ln(1-p) draws once in a million runs; and half of them end within ln 2/-ln(1-p).
    """
    part, waits = 0.01, 1000
    index = index_of(
        "proportional", {0: (500, part), **{n + 1: (500, (1 - part) / queues) for n in range(queues)}}
    )
    rng, lengths, since = Random(1), list[int](), 0
    while len(lengths) < waits:
        since += 1
        found = index.propose(index.offer_class(OFFER), lambda _: True, rng)
        assert found is not None
        if found.queue == 0:
            lengths.append(since)
            since = 0
    assert max(lengths) <= math.log(waits * 1e6) / -math.log1p(-part)
    half = sum(length <= math.log(2) / -math.log1p(-part) for length in lengths)
    assert half / waits == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("rule", "starves"), [("dirac", True), ("proportional", False)])
def test_short_jobs_starve_under_the_documents_rule_only(rule: Rule, starves: bool) -> None:
    """Highest CPU bucket first, whatever the priorities; p = 1/2 here, so 60 draws are enough for 1e-18."""
    index, rng = index_of(rule, {0: (500, 1.0), 1: (5000, 1.0)}), Random(1)
    drawn = [index.propose(index.offer_class(OFFER), lambda _: True, rng) for _ in range(60)]
    assert all(one and one.queue == 1 for one in drawn) is starves


def index_of(rule: Rule, queues: Mapping[int, tuple[int, float]]) -> QueueIndex:
    """Queues with jobs without end, by (CPU bucket, priority)."""
    index = QueueIndex(
        lambda wanted: [[(one.after + 1 + step,) for step in range(one.limit)] for one in wanted],
        rule=rule,
        cpu_buckets=(500, 5000),
        memory_buckets=(500,),
        priorities=Priorities(
            {f"g{number}": priority for number, (_, priority) in queues.items()}, frozenset()
        ),
        rng=Random(1),
    )
    for number, (cpu_time, _) in queues.items():
        identity = QueueIdentity("owner", f"g{number}", cpu_time=cpu_time, tags=frozenset())
        index.add_queue(IndexedQueue(QueueId(number), identity, ("owner", f"g{number}")))
        index.reset_queue(QueueId(number), {1: ENDLESS})
    return index


# --- who comes back


def away(day: float) -> bool:
    return not 3 <= day < 17


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instance", "highest", "lowest"),
    [
        pytest.param(DOCUMENT, HIGHEST, LOWEST, id="the document's policy"),
        pytest.param(integral(2 * DAY, most=3.0), 3.0, 1 / 3, id="integral"),
    ],
)
def test_who_comes_back_after_two_weeks_gets_the_bounded_boost_and_no_more(
    instance: HistoryInstance, highest: float, lowest: float
) -> None:
    found = pool(Flow(), Flow(present=away), "proportional", instance, slots=40).run(29)
    assert found.part("minor", 4, 17) == 0
    factors = [one["minor"] for one in found.factors]
    assert max(factors) <= highest * (1 + 1e-12)
    assert min(one["major"] for one in found.factors) >= lowest * (1 - 1e-12)
    most = 1000 * highest / (1000 * highest + 3000 * lowest)
    back = found.parts("minor", 0.5)[34:]
    # Boosted at first, within what these factors allow; then less and less; in the end at its share.
    assert back[0] > 0.25
    assert max(back) <= most
    assert found.part("minor", 25, 29) == pytest.approx(0.25, abs=0.03)
    if instance is DOCUMENT:
        assert factors[17 * PERIODS] == pytest.approx(HIGHEST), "absent in both slices"
        assert back[0] > 0.33


# --- the clock


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance", [pytest.param(DOCUMENT, id="ratio"), pytest.param(integral(WEEK), id="integral")]
)
def test_a_step_of_the_clock_by_a_day_forward_and_back_does_no_harm(instance: HistoryInstance) -> None:
    found = pool(Flow(), Flow(queues=5), "proportional", instance)
    found.steps.update({8.0: DAY, 12.0: -DAY, 15.0: -DAY, 18.0: DAY})
    found.run(24)
    assert found.ledger.outages
    assert found.part("major", 8, 24) == pytest.approx(ENTITLED, abs=0.01)
    assert found.parts("major", 1)[8:] == pytest.approx([ENTITLED] * 16, abs=0.06)
    # Nobody's use is lost or doubled: corrections stay where they were before the first step, but for chance.
    for group in SHARES:
        before = [one[group] for one in found.factors[4 * PERIODS : 8 * 144]]
        after = [one[group] for one in found.factors[8 * PERIODS :]]
        assert min(before) / 1.25 < min(after) <= max(after) < max(before) * 1.25
