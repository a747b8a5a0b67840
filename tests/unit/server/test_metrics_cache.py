"""Counting all jobs for metrics must not take much of the time, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.server import metrics_cache as module
from pilotage.server.metrics_cache import MAX_LOAD, QUICK, CachedJobTotals


class Readers:
    def connection(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("takes", "rest"), [(QUICK / 2, 0.0), (2.0, 2.0 / MAX_LOAD)])
def test_jobs_are_counted_anew_when_the_last_count_is_paid_for(
    takes: float, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, counted = 100.0, 0

    def count(_: Any) -> dict[str, int]:
        nonlocal now, counted
        now += takes
        counted += 1
        return {"Waiting": counted}

    monkeypatch.setattr(module.listing, "state_totals", count)  # type: ignore[attr-defined]
    totals = CachedJobTotals(Readers(), lambda: now)  # type: ignore[arg-type]
    assert totals.by_state() == {"Waiting": 1}
    if rest:
        now += rest - 1
        assert totals.by_state() == {"Waiting": 1}
        now += 1
    assert totals.by_state() == {"Waiting": 2}
