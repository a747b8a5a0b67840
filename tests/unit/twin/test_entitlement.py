from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.twin.entitlement import entitled_cores


@pytest.mark.parametrize(
    ("cores", "weights", "demands", "entitled"),
    [
        (90, {"a": 2, "b": 1}, {"a": 500, "b": 500}, {"a": 60, "b": 30}),
        (90, {"a": 2, "b": 1}, {"a": 500}, {"a": 90}),
        (90, {"a": 2, "b": 1}, {"a": 10, "b": 500}, {"a": 10, "b": 80}),
        (90, {"a": 2, "b": 1}, {"a": 10, "b": 20}, {"a": 10, "b": 20}),
        (90, {"a": 2, "b": 0}, {"a": 10, "b": 500}, {"a": 10, "b": 80}),
        (90, {"a": 2, "b": 0}, {"a": 100, "b": 500}, {"a": 90, "b": 0}),
        (90, {}, {"a": 60, "b": 500}, {"a": 45, "b": 45}),
        (0, {"a": 1}, {"a": 60}, {"a": 0}),
        (90, {"a": 1}, {"a": 0}, {}),
    ],
)
def test_cores_go_by_weight_up_to_the_demand(
    cores: float, weights: dict[str, float], demands: dict[str, float], entitled: dict[str, float]
) -> None:
    assert entitled_cores(cores, weights, demands) == pytest.approx(entitled)


parties = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.floats(1e-6, 100) | st.just(0.0), st.integers(0, 100))
)


@given(st.integers(0, 500), parties)
def test_nothing_is_lost_and_nobody_gets_more_than_the_demand(
    cores: int, given: dict[str, tuple[float, int]]
) -> None:
    demands = {name: float(demand) for name, (_, demand) in given.items()}
    entitled = entitled_cores(cores, {name: weight for name, (weight, _) in given.items()}, demands)
    assert sum(entitled.values()) == pytest.approx(min(cores, sum(demands.values())), abs=1e-6)
    assert all(part <= demands[name] + 1e-9 for name, part in entitled.items())
