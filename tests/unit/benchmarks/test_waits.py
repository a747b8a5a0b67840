"""The phases of a job's life, from its events and its attempt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from benchmarks.waits import PHASES, medians, told_waits, waits_of

from pilotage.wire.jobs import JobEvent


def test_the_phases_add_up_to_the_life_of_a_job() -> None:
    kinds = {"submitted": 10.0, "offered": 11.5, "confirmed": 11.7, "finished": 15.0}
    events = [JobEvent(at, kind, "", "", 1, "") for kind, at in kinds.items()]
    waits = waits_of(events, cast(Any, SimpleNamespace(attempts=[SimpleNamespace(wall=3.0)])))
    assert sum(waits.values()) == pytest.approx(5.0)
    assert waits["run"] == 3.0
    assert waits["start and report"] == pytest.approx(0.3)
    assert {"first offer", *waits} == set(PHASES)


def test_medians_are_told_in_milliseconds() -> None:
    waits = [dict.fromkeys(PHASES, seconds) for seconds in (0.001, 9.0, 0.002)]
    assert told_waits(medians(waits)).startswith("first offer 2.0, offer 2.0, ")
