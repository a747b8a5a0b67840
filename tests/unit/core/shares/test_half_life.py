"""The corrector HalfLife: decayed use against exact integration, its factors, and where it settles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import known_properties, parse
from pilotage.core.shares.correction import Corrections, Facts, correct
from pilotage.core.shares.corrector import CorrectorInstance
from pilotage.core.shares.correctors.half_life import HalfLifeInstance
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, HistoryInstance
from pilotage.core.shares.use import DAY, HALF_LIVES, HOUR, Ledger, Use, columns_of
from tests.unit.core.shares.simulated_pool import PERIODS, Flow, Pool

BEGIN = 1_700_006_400.0
HISTORY = 400.0 * DAY
WEEK = 7 * DAY
SHARES = {"major": 3000.0, "minor": 1000.0}


def ledger_of(
    *rows: tuple[str, float, float], until: float, outages: tuple[tuple[float, float], ...] = ()
) -> Ledger:
    """Rows (group, from, until): one job each on two cores; instants in seconds since the beginning."""
    ledger = Ledger(BEGIN, HISTORY, [(BEGIN + down, BEGIN + up) for down, up in outages])
    intervals = [("owner", group, BEGIN + start, BEGIN + end, 2) for group, start, end in rows]
    ledger.charge([columns_of(ledger, intervals)], BEGIN + until)
    return ledger


def exact(start: float, end: float, now: float, half_life: float) -> float:
    """The mean of 1 on [start, end) and 0 elsewhere, with the weight 2^(-age/half_life)."""
    return float(2 ** (-(now - end) / half_life) - 2 ** (-(now - start) / half_life))


# --- decayed use


@pytest.mark.parametrize("half_life", [HOUR, DAY, WEEK, 30 * DAY])
def test_decayed_use_is_the_integral_with_the_weight_of_its_age(half_life: float) -> None:
    rng = Random(1)
    now = 40 * DAY
    rows = []
    for number in range(200):
        start = rng.uniform(0, now - 60)
        rows.append((f"g{number}", start, min(now, start + rng.uniform(60, 2 * DAY))))
    found = ledger_of(*rows, until=now).decayed(half_life)
    assert found.jobs
    for group, start, end in rows:
        age = now - end
        # Use is spread over its bucket: an hour beyond three hours, a day beyond eight days.
        bucket = 60.0 if age < 2 * HOUR else HOUR if age < 6 * DAY else DAY
        wanted = exact(start, end, now, half_life)
        got = found.jobs.get(("owner", group), 0.0)
        if age > HALF_LIVES * half_life:
            assert got == 0.0
        elif now - start < (HALF_LIVES - 1) * half_life:
            assert got == pytest.approx(wanted, rel=2 ** (2 * bucket / half_life) - 1, abs=2e-3)
        assert found.cores.get(("owner", group), 0.0) == pytest.approx(2 * got)


def test_the_decayed_use_of_a_permanent_job_is_one() -> None:
    found = ledger_of(("a", 0, 30 * DAY), until=30 * DAY).decayed(DAY)
    assert found.jobs["owner", "a"] == pytest.approx(1 - 2**-HALF_LIVES, rel=1e-4)


def test_use_counts_half_after_a_half_life() -> None:
    early, late = (
        ledger_of(("a", 0, HOUR), until=HOUR + wait).decayed(DAY).jobs["owner", "a"] for wait in (0, DAY)
    )
    assert late == pytest.approx(early / 2, rel=1e-9)


def test_time_in_which_the_system_was_down_does_not_decay() -> None:
    up = ledger_of(("a", 0, HOUR), until=2 * HOUR).decayed(DAY)
    down = (90.0 * 60, 90.0 * 60 + 3 * DAY)
    with_outage = ledger_of(("a", 0, HOUR), until=2 * HOUR + 3 * DAY, outages=(down,)).decayed(DAY)
    assert with_outage.jobs["owner", "a"] == pytest.approx(up.jobs["owner", "a"], rel=1e-9)
    # Charged to nobody either, although the job ran through it.
    through = ledger_of(("a", 0, 3 * DAY + 2 * HOUR), until=2 * HOUR + 3 * DAY, outages=(down,)).decayed(DAY)
    always = ledger_of(("a", 0, 2 * HOUR), until=2 * HOUR).decayed(DAY)
    assert through.jobs["owner", "a"] == pytest.approx(always.jobs["owner", "a"], rel=1e-9)


def test_without_any_use_nothing_is_decayed() -> None:
    assert ledger_of(until=DAY).decayed(DAY) == Use({}, {})


# --- factors


def corrected(
    instance: CorrectorInstance, use: Mapping[tuple[str, str], float], *waiting: tuple[str, str]
) -> Corrections:
    facts = Facts(
        shares={"A": 1000.0, "B": 3000.0},
        owners=frozenset(waiting),
        admits=lambda owner, group: owner != "gone",
        use=lambda span: Use({}, {}),
        decayed_use=lambda half_life: Use({}, use) if half_life == WEEK else Use({}, {}),
        elapsed=60.0,
    )
    return correct([instance.corrector], {instance.corrector: {"i": instance}}, facts, {})


A, B = ("x", "A"), ("x", "B")


@pytest.mark.parametrize(
    ("use", "factors"),
    [
        ({A: 1.0, B: 3.0}, {"A": 1.0, "B": 1.0}),
        ({A: 1.0, B: 1.0}, {"A": 0.5, "B": 1.5}),
        ({B: 4.0}, {"A": 4.0, "B": 0.75}),
        ({A: 1.0}, {"A": 0.25, "B": 4.0}),
        ({}, {"A": 1.0, "B": 1.0}),
        ({A: 1.0, ("x", "left"): 50.0, B: 3.0}, {"A": 1.0, "B": 1.0}),
    ],
)
def test_the_factor_is_expected_divided_by_decayed_use_within_bounds(
    use: Mapping[tuple[str, str], float], factors: Mapping[str, float]
) -> None:
    found = corrected(HalfLifeInstance(max_correction=4), use, A, B)
    assert found.groups == pytest.approx(factors)
    assert found.memory == {}
    [report] = found.reports
    assert report.corrector == "HalfLife"
    assert {part.measure for entity in report.entities for part in entity.slices} == {"decayed"}


def test_between_owners_each_is_entitled_to_the_same() -> None:
    use = {("ann", "A"): 3.0, ("bob", "A"): 1.0, ("gone", "A"): 9.0, B: 99.0}
    found = corrected(HalfLifeInstance(group="A"), use, ("ann", "A"), ("bob", "A"))
    assert found.owners == pytest.approx({("ann", "A"): 0.5 / 0.75, ("bob", "A"): 2.0})
    assert found.groups == {}


# --- the policy

POLICY = """\
[groups.physics]
properties = ["NORMAL_USER", "JOB_SHARING"]
[groups.students]
[users.alice]
groups = ["physics", "students"]
[correction]
correctors = ["WMSHistory", "HalfLife"]
[correction.WMSHistory.groups.slices.day]
time_span = 86400
[correction.HalfLife.groups]
half_life = 86400
max_correction = 4
"""


def test_the_policy_has_instances_of_both_in_order() -> None:
    policy = parse(POLICY)
    assert [(one.corrector, one.name) for one in policy.correction.instances] == [
        ("WMSHistory", "groups"),
        ("HalfLife", "groups"),
    ]
    assert [type(one) for one in policy.correction.between("")] == [HistoryInstance, HalfLifeInstance]
    assert policy.correction.between("students") == ()
    [told] = [line for line in known_properties(policy) if "the product of" in line]
    assert told.startswith("WMSHistory groups, HalfLife groups correct between the groups")
    assert "between 0.0833 and 12" in told


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('"HalfLife"]', '"HalfLive"]', "there is no corrector HalfLive", "known: HalfLife, "),
        ("[correction.HalfLife.groups]", "[correction.HalfLive.groups]", "unknown key HalfLive", "HalfLife"),
        ("half_life =", "halflife =", "unknown key halflife", "half_life"),
        ("half_life = 86400", "half_life = 5", "half_life must be between 600 and", "half-lives"),
        ("half_life = 86400", "half_life = 3456001", "accounting.history/10 (3456000)", "accounting.history"),
        ("max_correction = 4", "max_correction = 1", "with 1 nothing is corrected", ""),
        ("max_correction = 4", "max_correction = 1e9", "must be a number from 1 to", ""),
        ("max_correction = 4", 'max_correction = "4"', "must be a number, not a text", "max_correction: "),
        ("max_correction = 4", 'group = "physics"', "has JOB_SHARING", "remove the instance"),
        ("max_correction = 4", 'group = "nobody"', "there is no group nobody", "physics, students"),
        ('"WMSHistory", "HalfLife"', '"WMSHistory"', "HalfLife has instances, but", '"HalfLife"]'),
        (
            "[correction.HalfLife.groups]\nhalf_life = 86400\nmax_correction = 4\n",
            "",
            "has no instance",
            "HalfLife",
        ),
    ],
)
def test_wrong_values_are_refused_with_the_known_names(old: str, new: str, message: str, hint: str) -> None:
    assert old in POLICY
    with pytest.raises(InvalidInput) as refused:
        parse(POLICY.replace(old, new))
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.line


# --- where it settles, in virtual time


def pool(minor: Flow, rule: str, *instances: CorrectorInstance, slots: int = 50) -> Pool:
    named = {f"i{place}": instance for place, instance in enumerate(instances)}
    return Pool({"major": Flow(), "minor": minor}, SHARES, rule, named, slots=slots)  # type: ignore[arg-type]


@pytest.mark.slow
def test_under_the_documents_draw_it_settles_at_the_fixed_point_of_the_ratio() -> None:
    """As WMSHistory does: 18(1-u)² = u, .790 of the entitled .75; without a correction it would be .833."""
    found = pool(Flow(), "dirac", HalfLifeInstance(half_life=DAY), slots=60).run(30)
    settled = (37 - math.sqrt(73)) / 36
    assert found.part("major", 10, 30) == pytest.approx(settled, abs=0.01)
    assert found.parts("major", 7)[1:] == pytest.approx([settled] * 3, abs=0.015)


@pytest.mark.slow
def test_under_the_proportional_draw_the_shares_are_kept_whoever_floods() -> None:
    found = pool(Flow(queues=20), "proportional", HalfLifeInstance(half_life=2 * DAY)).run(30)
    assert found.part("major", 10, 30) == pytest.approx(0.75, abs=0.01)


@pytest.mark.slow
def test_a_returning_owners_boost_is_bounded_and_decays() -> None:
    most = 2.5
    instance = HalfLifeInstance(half_life=DAY, max_correction=most)
    found = pool(Flow(present=lambda day: not 3 <= day < 17), "proportional", instance, slots=40).run(29)
    factors = [one["minor"] for one in found.factors]
    assert max(factors) == most == factors[17 * PERIODS + 1]
    back = found.parts("minor", 0.5)[34:]
    assert back[0] > 0.3
    assert found.part("minor", 25, 29) == pytest.approx(0.25, abs=0.03)


@pytest.mark.slow
def test_together_with_the_other_corrector_it_comes_to_rest_at_the_shares() -> None:
    week = HistoryInstance(slices={"Week": CorrectionSlice(time_span=WEEK, max_correction=2)})
    found = pool(Flow(queues=5), "proportional", week, HalfLifeInstance(half_life=DAY)).run(30)
    assert found.part("major", 10, 30) == pytest.approx(0.75, abs=0.01)
    assert found.parts("major", 1)[14:] == pytest.approx([0.75] * 16, abs=0.06)
