"""Share corrections: the examples of docs/reference/rules.md, section 5, to the last digit; correctors in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from pilotage.core.shares.correction import Corrections, Facts, Memory, correct
from pilotage.core.shares.corrector import Competition, CorrectorInstance, InstanceMemory, clamp, ratio
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, Form, HistoryInstance
from pilotage.core.shares.priorities import Priorities
from pilotage.core.shares.reports import EntityReport, InstanceReport
from pilotage.core.shares.use import Entity, Unit, Use

WEEK, HOUR = 604800.0, 3600.0
WEEK_SLICE = CorrectionSlice(time_span=WEEK, weight=80, max_correction=2)
HOUR_SLICE = CorrectionSlice(time_span=HOUR, weight=20, max_correction=5)
DOCUMENT = HistoryInstance(max_global_correction_factor=3, slices={"Week": WEEK_SLICE, "Hour": HOUR_SLICE})
ONE_SLICE = HistoryInstance(
    max_global_correction_factor=100, slices={"Week": altered(WEEK_SLICE, max_correction=10)}
)

Running = Mapping[float, Mapping[Entity, tuple[float, float]]]
"""By span: average jobs and cores."""


def by_groups(week: Mapping[str, float], hour: Mapping[str, float]) -> Running:
    return {
        WEEK: {("x", group): (jobs, jobs) for group, jobs in week.items()},
        HOUR: {("x", group): (jobs, jobs) for group, jobs in hour.items()},
    }


def by_owners(group: str, week: Mapping[str, float], hour: Mapping[str, float]) -> Running:
    return {
        WEEK: {(owner, group): (jobs, jobs) for owner, jobs in week.items()},
        HOUR: {(owner, group): (jobs, jobs) for owner, jobs in hour.items()},
    }


def facts(
    shares: Mapping[str, float],
    running: Running,
    *waiting: Entity,
    elapsed: float = 600.0,
    members: frozenset[Entity] = frozenset(),
    sharing: frozenset[str] = frozenset(),
) -> Facts:
    def use(span: float) -> Use:
        found = running[span]
        return Use(
            {entity: jobs for entity, (jobs, _) in found.items() if jobs},
            {entity: cores for entity, (_, cores) in found.items() if cores},
        )

    return Facts(
        shares=shares,
        owners=frozenset(waiting),
        admits=lambda owner, group: (owner, group) in members,
        use=use,
        decayed_use=use,
        elapsed=elapsed,
    )


def corrected(asked: Facts, memory: Memory | None = None, **instances: HistoryInstance) -> Corrections:
    return correct(["WMSHistory"], {"WMSHistory": instances}, asked, memory or {})


def entity(found: Corrections, name: str, instance: str = "Groups") -> EntityReport:
    (report,) = (one for one in found.reports if one.name == instance)
    return next(one for one in report.entities if one.name == name)


A, B, C = ("x", "A"), ("x", "B"), ("x", "C")
EQUAL = {"A": 1000.0, "B": 1000.0}

# --- the worked examples


def test_three_times_the_share_gives_one_third() -> None:
    assert ratio(0.25, 0.75, 5) == 1 / 3
    found = corrected(
        facts({"A": 1000.0, "B": 3000.0}, by_groups({"A": 75, "B": 25}, {}), A, B), Groups=ONE_SLICE
    )
    assert found.groups == {"A": 1 / 3, "B": 3.0}


def test_a_group_without_use_in_both_slices_is_raised() -> None:
    found = corrected(facts(EQUAL, by_groups({"A": 1}, {"A": 1}), A, B), Groups=DOCUMENT)
    assert found.groups["B"] == 2.6
    assert entity(found, "B").weighted == 2.6


def test_absent_in_the_hour_only_at_its_share_in_the_week() -> None:
    found = corrected(facts(EQUAL, by_groups({"A": 1, "B": 1}, {"A": 1}), A, B), Groups=DOCUMENT)
    assert found.groups["B"] == 1.8
    assert found.groups["A"] == pytest.approx(0.8 * 1 + 0.2 * 0.5, rel=1e-15)


def test_a_group_with_three_times_its_share_in_both_slices_is_lowered() -> None:
    shares = {"A": 1000.0, "B": 3000.0}
    found = corrected(facts(shares, by_groups({"A": 3, "B": 1}, {"A": 3, "B": 1}), A, B), Groups=DOCUMENT)
    assert found.groups["A"] == pytest.approx(0.8 * 0.5 + 0.2 / 3, rel=1e-15)
    assert round(found.groups["A"], 3) == 0.467
    assert found.groups["B"] == pytest.approx(0.8 * 2 + 0.2 * 3, rel=1e-15)


@pytest.mark.parametrize(("part", "most"), [("Week", 2.0), ("Hour", 5.0)])
def test_each_slice_is_kept_within_its_own_bounds(part: str, most: float) -> None:
    found = corrected(facts(EQUAL, by_groups({"A": 999, "B": 1}, {"A": 999, "B": 1}), A, B), Groups=DOCUMENT)
    low, high = (next(one for one in entity(found, name).slices if one.name == part) for name in ("A", "B"))
    assert (low.correction, high.correction) == (max(0.5 / 0.999, 1 / most), most)
    assert (low.expected, low.used, low.running) == (0.5, 0.999, 999)


def test_the_documents_global_bound_never_binds() -> None:
    """2.6 and .44 are the farthest that its slices allow: within 3 and 1/3."""
    shares = {"A": 1.0, "B": 1e9}
    found = corrected(facts(shares, by_groups({"A": 1}, {"A": 1}), A, B), Groups=DOCUMENT)
    for name, edge in (("A", 0.8 * 0.5 + 0.2 * 0.2), ("B", 2.6)):
        assert entity(found, name).weighted == pytest.approx(edge, rel=1e-15)
        assert entity(found, name).factor == entity(found, name).weighted


@pytest.mark.parametrize("most", [1.0, 1.5, 2.0])
def test_where_the_global_bound_binds_it_holds(most: float) -> None:
    shares = {"A": 1.0, "B": 1e9}
    tight = altered(DOCUMENT, max_global_correction_factor=most)
    found = corrected(facts(shares, by_groups({"A": 1}, {"A": 1}), A, B), Groups=tight)
    assert found.groups == {"A": 1 / most, "B": most}
    assert entity(found, "B").weighted == 2.6


def test_a_slice_without_any_use_corrects_nothing() -> None:
    found = corrected(facts(EQUAL, by_groups({}, {}), A, B), Groups=DOCUMENT)
    assert found.groups == {"A": 1.0, "B": 1.0}
    assert all(one.used is None for one in entity(found, "A").slices)
    one_only = corrected(facts(EQUAL, by_groups({"A": 1}, {}), A, B), Groups=DOCUMENT)
    assert one_only.groups == pytest.approx({"A": 0.8 * 0.5 + 0.2, "B": 0.8 * 2 + 0.2}, rel=1e-15)


# --- the set


def test_a_slice_covers_groups_that_wait_or_have_used_in_it() -> None:
    shares = {"A": 1000.0, "B": 1000.0, "C": 2000.0, "D": 4000.0}
    found = corrected(facts(shares, by_groups({"A": 1, "C": 1}, {"A": 1}), A, B), Groups=DOCUMENT)
    expected = {name: [one.expected for one in entity(found, name).slices] for name in found.groups}
    assert expected == {"A": [0.25, 0.5], "B": [0.25, 0.5], "C": [0.5, None]}
    # C is not of the hour's set: nothing is said of it there.
    assert found.groups["C"] == pytest.approx(0.8 * 1 + 0.2 * 1)


def test_group_corrections_are_not_renormalised() -> None:
    shares = {"A": 1000.0, "B": 1000.0, "C": 1000.0}
    found = corrected(
        facts(shares, by_groups({"A": 50, "B": 50}, {"A": 50, "B": 50}), A, B, C), Groups=DOCUMENT
    )
    assert found.groups == pytest.approx({"A": 2 / 3, "B": 2 / 3, "C": 2.6}, rel=1e-15)


def test_a_group_without_share_is_kept_down_and_harms_nobody() -> None:
    shares = {"A": 1000.0, "B": 0.0, "C": 1000.0}
    found = corrected(
        facts(shares, by_groups({"A": 1, "B": 2, "C": 1}, {"A": 1, "B": 2, "C": 1}), A, B, C),
        Groups=DOCUMENT,
    )
    assert found.groups["A"] == found.groups["C"] == pytest.approx(0.8 * 2 + 0.2 * 2)
    assert found.groups["B"] == pytest.approx(0.8 / 2 + 0.2 / 5)


def test_where_no_group_of_the_set_has_a_share_nothing_breaks() -> None:
    found = corrected(facts({"A": 0.0, "B": 0.0}, by_groups({"A": 1}, {}), A, B), Groups=DOCUMENT)
    assert all(math.isfinite(factor) and factor > 0 for factor in found.groups.values())


def test_use_of_groups_that_the_policy_has_forgotten_counts_for_nothing() -> None:
    left = by_groups({"A": 1, "B": 3}, {"A": 1, "B": 3})
    rows = by_groups({"A": 1, "B": 3, "gone": 100}, {"A": 1, "B": 3, "gone": 100})
    asked = facts(EQUAL, left, A, B)
    with_rows = facts(EQUAL, rows, A, B, ("x", "gone"))
    assert corrected(with_rows, Groups=DOCUMENT) == corrected(asked, Groups=DOCUMENT)


def test_only_use_of_forgotten_groups_is_a_slice_without_use() -> None:
    found = corrected(facts(EQUAL, by_groups({"gone": 1}, {"gone": 1}), A, B), Groups=DOCUMENT)
    assert found.groups == {"A": 1.0, "B": 1.0}


def test_an_empty_policy_and_an_empty_pool() -> None:
    assert corrected(facts({}, by_groups({}, {}))) == Corrections()
    assert correct([], {}, facts(EQUAL, by_groups({"A": 1}, {}), A), {}) == Corrections()
    found = corrected(facts({}, by_groups({"A": 1}, {})), Groups=DOCUMENT)
    assert (found.groups, found.owners) == ({}, {})
    assert found.reports == [InstanceReport("Groups", "", (), "WMSHistory")]


# --- owners


def test_owners_are_entitled_to_equal_parts() -> None:
    week, hour = {"ann": 90, "bob": 10}, {"ann": 90, "bob": 10}
    asked = facts(EQUAL, by_owners("A", week, hour), ("ann", "A"), ("bob", "A"))
    found = corrected(asked, Owners=altered(DOCUMENT, group="A"))
    ann = 0.8 * (0.5 / 0.9) + 0.2 * (0.5 / 0.9)
    assert found.owners == pytest.approx({("ann", "A"): ann, ("bob", "A"): 0.8 * 2 + 0.2 * 5}, rel=1e-15)
    assert found.groups == {}


def test_owner_corrections_leave_their_groups_share_whole() -> None:
    week, hour = {"ann": 90, "bob": 10}, {"ann": 90, "bob": 10}
    asked = facts(EQUAL, by_owners("A", week, hour), ("ann", "A"), ("bob", "A"), ("cleo", "A"))
    found = corrected(asked, Groups=DOCUMENT, Owners=altered(DOCUMENT, group="A"))
    priorities: Priorities[int] = Priorities(EQUAL, frozenset())
    for number, owner in enumerate(("ann", "bob", "cleo")):
        priorities.set(number, owner, "A", 1, 1)
    priorities.correct(found.groups, found.owners)
    settled = dict(priorities.recompute())
    assert sum(settled.values()) == pytest.approx(1000 * found.groups["A"], rel=1e-15)
    assert settled[2] / settled[0] == pytest.approx(found.owners["cleo", "A"] / found.owners["ann", "A"])
    assert settled[0] < settled[1] <= settled[2]


def test_owners_of_other_groups_and_vanished_ones_count_for_nothing() -> None:
    running: Running = {
        span: {("ann", "A"): (1.0, 1.0), ("bob", "B"): (50.0, 50.0), ("gone", "A"): (70.0, 70.0)}
        for span in (WEEK, HOUR)
    }
    asked = facts(EQUAL, running, ("ann", "A"), ("bob", "B"), members=frozenset({("ann", "A")}))
    found = corrected(asked, Owners=altered(DOCUMENT, group="A"))
    assert found.owners == {("ann", "A"): 1.0}
    known = replace(asked, admits=lambda owner, group: True)
    assert corrected(known, Owners=altered(DOCUMENT, group="A")).owners.keys() == {
        ("ann", "A"),
        ("gone", "A"),
    }


# --- units


@pytest.mark.parametrize(
    ("unit", "factors"), [("jobs", {"A": 1.0, "B": 1.0}), ("cores", {"A": 2.5, "B": 0.625})]
)
def test_use_is_counted_in_jobs_or_cores(unit: Unit, factors: Mapping[str, float]) -> None:
    running: Running = {WEEK: {A: (10.0, 10.0), B: (10.0, 40.0)}}
    found = corrected(facts(EQUAL, running, A, B), Groups=altered(ONE_SLICE, unit=unit))
    assert found.groups == pytest.approx(factors, rel=1e-15)


# --- in order


class Halve(CorrectorInstance, frozen=True):
    """Halves the share of A, and notes the shares that it is given."""

    corrector = "Halve"
    seen: ClassVar[list[Mapping[str, float]]] = []

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        self.seen.append({entity: competition.share_of(entity) for entity in competition.waiting})
        return (EntityReport("A", (), 0.5, 0.5),), {("", "A"): 1.0 + memory.get(("", "A"), 0.0)}


def test_correctors_run_in_order_on_the_shares_corrected_so_far() -> None:
    seen = Halve.seen
    seen.clear()
    shares = {"A": 2000.0, "B": 1000.0}
    asked = facts(shares, by_groups({"A": 1, "B": 1}, {}), A, B)
    instances: dict[str, Any] = {"WMSHistory": {"Groups": ONE_SLICE}, "Halve": {"Half": Halve()}}
    alone = {"A": (2 / 3) / 0.5, "B": (1 / 3) / 0.5}

    found = correct(["WMSHistory", "Halve"], instances, asked, {})
    assert seen == [pytest.approx({"A": 2000 * alone["A"], "B": 1000 * alone["B"]})]
    assert found.groups == pytest.approx({"A": alone["A"] * 0.5, "B": alone["B"]})
    assert [(report.corrector, report.name) for report in found.reports] == [
        ("WMSHistory", "Groups"),
        ("Halve", "Half"),
    ]

    seen.clear()
    found = correct(["Halve", "WMSHistory"], instances, asked, {})
    assert seen == [shares]
    # Halved first, both are entitled to a half, and have it.
    assert found.groups == pytest.approx({"A": 0.5, "B": 1.0})


def test_instances_between_the_same_entities_multiply_whatever_their_order() -> None:
    asked = facts(EQUAL, by_groups({"A": 3, "B": 1}, {"A": 1}), A, B)
    week = altered(ONE_SLICE, max_global_correction_factor=1.5)
    alone = [corrected(asked, Only=instance).groups for instance in (week, DOCUMENT)]
    product = {name: alone[0][name] * alone[1][name] for name in "AB"}
    assert product["A"] != 1
    assert corrected(asked, Week=week, Document=DOCUMENT).groups == pytest.approx(product, rel=1e-15)
    assert corrected(asked, Document=DOCUMENT, Week=week).groups == pytest.approx(product, rel=1e-15)
    owners = [altered(instance, group="A") for instance in (week, DOCUMENT)]
    running = by_owners("A", {"ann": 3, "bob": 1}, {"ann": 1})
    asked = facts(EQUAL, running, ("ann", "A"), ("bob", "A"))
    together = corrected(asked, Week=owners[0], Document=owners[1])
    assert together.owners == pytest.approx({("ann", "A"): product["A"], ("bob", "A"): product["B"]})


def test_instances_of_one_name_remember_apart() -> None:
    asked = facts(EQUAL, by_groups({"A": 3, "B": 1}, {}), A, B, elapsed=WEEK)
    instances = {"WMSHistory": {"Groups": integral()}, "Halve": {"Groups": Halve()}}
    memory: Memory = {}
    for count in (1.0, 2.0):
        memory = correct(["WMSHistory", "Halve"], instances, asked, memory).memory  # type: ignore[arg-type]
        assert memory["Halve", "Groups", "", "A"] == count
    alone: Memory = {}
    for _ in range(2):
        alone = corrected(asked, alone, Groups=integral()).memory
    assert {key: value for key, value in memory.items() if key[0] == "WMSHistory"} == alone


def test_use_of_one_span_is_read_once_for_all_instances() -> None:
    read: list[float] = []
    asked = facts(EQUAL, by_groups({"A": 1}, {"A": 1}), A, B)

    def use(span: float) -> Use:
        read.append(span)
        return asked.use(span)

    owners = {f"of{group}": altered(DOCUMENT, group=group) for group in "AB"}
    corrected(replace(asked, use=use), Groups=DOCUMENT, **dict[str, Any](owners))
    assert sorted(read) == [HOUR, WEEK]


# --- the integral form


def integral(gain: float = 1.0, most: float = 10.0, span: float = WEEK) -> HistoryInstance:
    part = CorrectionSlice(time_span=span, weight=1, max_correction=most)
    return HistoryInstance(
        form="integral", gain=gain, max_global_correction_factor=100, slices={"Week": part}
    )


def test_the_integral_form_carries_its_correction_on() -> None:
    asked = facts(EQUAL, by_groups({"A": 3, "B": 1}, {}), A, B, elapsed=WEEK / 10)
    found = corrected(asked, Groups=integral(gain=0.5))
    step = {"A": (0.5 / 0.75) ** 0.05, "B": 2**0.05}
    assert found.groups == pytest.approx(step, rel=1e-15)
    for times in range(2, 6):
        found = corrected(asked, found.memory, Groups=integral(gain=0.5))
        assert found.groups == pytest.approx({name: one**times for name, one in step.items()}, rel=1e-14)


@given(st.floats(1, 2 * WEEK), st.integers(1, 20))
def test_the_integral_form_does_not_depend_on_how_often_it_is_drawn(whole: float, times: int) -> None:
    """Within one time span, which is the most that counts at once."""
    whole = min(whole, WEEK)
    found = corrected(facts(EQUAL, by_groups({"A": 3, "B": 1}, {}), A, B, elapsed=whole), Groups=integral())
    memory: Memory = {}
    for _ in range(times):
        asked = facts(EQUAL, by_groups({"A": 3, "B": 1}, {}), A, B, elapsed=whole / times)
        step = corrected(asked, memory, Groups=integral())
        memory = step.memory
    assert step.groups == pytest.approx(found.groups, rel=1e-9)


def test_a_long_pause_counts_as_one_time_span_at_most() -> None:
    running = by_groups({"A": 3, "B": 1}, {})
    one, many = (
        corrected(facts(EQUAL, running, A, B, elapsed=elapsed), Groups=integral()).groups
        for elapsed in (WEEK, 50 * WEEK)
    )
    assert one == many == pytest.approx({"A": 2 / 3, "B": 2.0})


def test_the_integral_form_stays_within_its_bounds() -> None:
    asked, memory = facts(EQUAL, by_groups({"A": 1}, {}), A, B, elapsed=WEEK), Memory()
    for _ in range(10):
        found = corrected(asked, memory, Groups=integral(most=4))
        memory = found.memory
    assert found.groups == {"A": 1 / 4, "B": 4}
    tighter = corrected(replace(asked, elapsed=0.0), memory, Groups=integral(most=2))
    assert tighter.groups == {"A": 1 / 2, "B": 2}


def test_a_slice_without_use_keeps_the_last_correction() -> None:
    memory = {("WMSHistory", "Groups", "Week", "A"): 0.5, ("WMSHistory", "Groups", "Week", "B"): 3.0}
    found = corrected(facts(EQUAL, by_groups({}, {}), A, B), memory, Groups=integral())
    assert found.groups == {"A": 0.5, "B": 3.0}
    assert found.memory == memory


def test_use_as_expected_keeps_the_last_correction() -> None:
    memory = {("WMSHistory", "Groups", "Week", "A"): 0.5, ("WMSHistory", "Groups", "Week", "B"): 3.0}
    found = corrected(facts(EQUAL, by_groups({"A": 2, "B": 2}, {}), A, B), memory, Groups=integral())
    assert found.groups == {"A": 0.5, "B": 3.0}


def test_the_memory_of_a_group_outside_the_set_is_forgotten() -> None:
    memory = {("WMSHistory", "Groups", "Week", "A"): 0.5, ("WMSHistory", "Groups", "Week", "B"): 3.0}
    found = corrected(facts(EQUAL, by_groups({"A": 1}, {}), A), memory, Groups=integral())
    assert found.memory == {("WMSHistory", "Groups", "Week", "A"): 0.5}
    assert "B" not in found.groups


def test_the_ratio_form_remembers_nothing() -> None:
    found = corrected(facts(EQUAL, by_groups({"A": 1}, {"A": 1}), A, B), Groups=DOCUMENT)
    assert found.memory == {}


# --- any numbers

amounts = st.one_of(st.just(0.0), st.floats(5e-324, 1e-300), st.floats(0, 1e6), st.floats(0, 1e300))


@given(
    st.fixed_dictionaries(dict.fromkeys("ABC", amounts)),
    st.fixed_dictionaries(dict.fromkeys("ABC", amounts)),
    st.fixed_dictionaries(dict.fromkeys("ABC", amounts)),
    st.sampled_from(["ratio", "integral"]),
    st.floats(0, 1e12),
    st.sets(st.sampled_from([A, B, C, ("x", "gone")])),
)
def test_whatever_the_numbers_factors_stay_within_bounds(
    shares: Mapping[str, float],
    week: Mapping[str, float],
    hour: Mapping[str, float],
    form: Form,
    elapsed: float,
    waiting: set[Entity],
) -> None:
    instance = altered(DOCUMENT, form=form)
    asked = facts(shares, by_groups(week, hour), *waiting, elapsed=elapsed)
    memory: Memory = {}
    for _ in range(3):
        found = corrected(asked, memory, Groups=instance)
        memory = found.memory
        assert all(0.44 - 1e-9 <= factor <= 2.6 + 1e-9 for factor in found.groups.values())
        known = {group for _, group in waiting if group in shares}
        assert known <= found.groups.keys() <= shares.keys()


@given(st.floats(1e-9, 1e9), st.floats(1, 1e6))
def test_a_clamp_is_the_same_both_ways(value: float, most: float) -> None:
    assert 1 / most <= clamp(value, most) <= most
    assert clamp(1 / value, most) == pytest.approx(1 / clamp(value, most))
