"""What the global bound of corrections between owners bounds once they are scaled to their group's share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.policy import known_properties, parse
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, HistoryInstance
from pilotage.core.shares.priorities import Priorities, scaled_range

SHARE = 1000.0


def entitled(factors: dict[str, float]) -> dict[str, float]:
    """E of the owners of a group of share 1000, each with one queue."""
    priorities: Priorities[str] = Priorities({"g": SHARE}, frozenset())
    for owner in factors:
        priorities.set(f"queue of {owner}", owner, "g", 1, 1)
    priorities.correct({}, {(owner, "g"): factor for owner, factor in factors.items()})
    list(priorities.recompute())
    return {row.owner: row.share for row in priorities.table()}


def test_the_example_of_the_docs() -> None:
    got = entitled({"one": 3.0, **{f"o{number}": 1 / 3 for number in range(9)}})
    assert got["one"] == pytest.approx(500)
    assert got["o1"] == pytest.approx(55.5556, rel=1e-4)
    assert sum(got.values()) == pytest.approx(SHARE)
    assert scaled_range(1 / 3, 3.0, 10)[1] == pytest.approx(5.0)
    assert scaled_range(1 / 3, 3.0, 2) == pytest.approx((0.2, 1.8))


@given(
    bound=st.floats(1.01, 50),
    data=st.lists(st.floats(-1, 1), min_size=1, max_size=30),
)
def test_an_owner_stays_within_the_range_after_scaling(bound: float, data: list[float]) -> None:
    got = entitled({f"o{place}": bound**exponent for place, exponent in enumerate(data)})
    low, high = scaled_range(1 / bound, bound, len(data))
    equal = SHARE / len(data)
    assert all(low * (1 - 1e-9) <= share / equal <= high * (1 + 1e-9) for share in got.values())
    assert sum(got.values()) == pytest.approx(SHARE)
    assert max(got.values()) <= min(got.values()) * bound**2 * (1 + 1e-9)


@given(bound=st.floats(1.01, 50), owners=st.integers(2, 30))
def test_the_range_is_reached_and_wider_than_the_bound_says(bound: float, owners: int) -> None:
    low, high = scaled_range(1 / bound, bound, owners)
    equal = SHARE / owners
    up = entitled({"o": bound, **{f"p{place}": 1 / bound for place in range(owners - 1)}})
    down = entitled({"o": 1 / bound, **{f"p{place}": bound for place in range(owners - 1)}})
    assert up["o"] / equal == pytest.approx(high)
    assert down["o"] / equal == pytest.approx(low)
    assert low < 1 / bound
    assert high < bound**2


def test_slices_may_keep_corrections_closer_together() -> None:
    slices = {
        "week": CorrectionSlice(time_span=604800, weight=80, max_correction=2),
        "hour": CorrectionSlice(time_span=3600, weight=20, max_correction=5),
    }
    wide, narrow = (HistoryInstance(max_global_correction_factor=most, slices=slices) for most in (3.0, 2.0))
    assert wide.correction_range == pytest.approx((0.44, 2.6))
    assert narrow.correction_range == pytest.approx((0.5, 2.0))


def test_policy_check_tells_it_of_instances_between_owners() -> None:
    text = """\
[groups.analysis]
[users.ada]
groups = ["analysis"]
[correction]
correctors = ["WMSHistory"]
[correction.WMSHistory.groups.slices.day]
[correction.WMSHistory.analysts]
group = "analysis"
max_global_correction_factor = 3
[correction.WMSHistory.analysts.slices.day]
time_span = 86400
max_correction = 10
"""
    for rule in ("dirac", "proportional"):
        told = known_properties(parse(f'{text}[matching]\nrule = "{rule}"\n'))
        [line] = [line for line in told if "before the owners" in line]
        assert line.startswith("WMSHistory analysts: the bounds apply to each owner's correction before")
        assert "at most a factor of 9" in line
        assert "one of 2 owners gets between 0.2 and 1.8" in line
        assert "one of 10 between 0.122 and 5" in line
