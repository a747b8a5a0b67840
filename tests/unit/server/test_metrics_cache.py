"""Counting for metrics must not take much of the time, however much there is to count."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.server.metrics_cache import MAX_LOAD, QUICK, CachedCounts


class Readers:
    def connection(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("takes", "rest"), [(QUICK / 2, 0.0), (2.0, 2.0 / MAX_LOAD)])
def test_a_count_is_repeated_when_its_cost_is_a_small_fraction_of_the_time(takes: float, rest: float) -> None:
    now, counted = 100.0, 0

    def count(_: Any) -> dict[str, int]:
        nonlocal now, counted
        now += takes
        counted += 1
        return {"Waiting": counted}

    totals = CachedCounts(Readers(), lambda: now, count)  # type: ignore[arg-type]
    assert totals.read() == {"Waiting": 1}
    if rest:
        now += rest - 1
        assert totals.read() == {"Waiting": 1}
        now += 1
    assert totals.read() == {"Waiting": 2}
