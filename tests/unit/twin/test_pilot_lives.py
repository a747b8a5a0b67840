"""CEs of the twin from the lives of a server's own pilots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.policy import parse
from pilotage.twin.ces import TwinNodes
from pilotage.twin.pilot_lives import RecordedPilot, ces_of_pilots

POLICY = parse("""
[groups.g]
properties = ["ADMINISTRATOR"]
[users.ada]
groups = ["g"]
[sites.here]
[ces.local]
site = "here"
processors = 4
memory = 8000
[ces.grid]
site = "here"
type = "slurm"
pilot_processors = 2
[ces.unused]
site = "here"
type = "slurm"
""")
BEGIN, END = 1000.0, 8200.0
LIVES = [
    RecordedPilot("grid", 2, 900.0, 950.0, 1100.0, failed=False),  # it began before the period
    RecordedPilot("grid", 2, 1000.0, 1100.0, 4600.0, failed=True),
    RecordedPilot("grid", 2, 1000.0, 1300.0, None, failed=False),
    RecordedPilot("grid", 2, 2000.0, None, 3000.0, failed=True),  # it never called
    RecordedPilot("local", 1, 1000.0, 1001.0, 1500.0, failed=False),
    RecordedPilot("unused", 1, 10.0, 11.0, 500.0, failed=False),  # before the period
]


def test_waits_failures_and_cores_are_those_of_the_pilots() -> None:
    (local, grid), notes = ces_of_pilots(POLICY, LIVES, BEGIN, END, 1)
    assert notes == ("CE unused had no pilots in the period, so it is left out",)
    assert grid.nodes == (TwinNodes(2, 2),)
    assert (grid.waits[0], grid.waits[10], grid.waits[-1]) == (100.0, 200.0, 300.0)
    assert grid.failure_rate == pytest.approx(1 / ((100 + 3500 + 6900) / 3600), rel=1e-4)
    assert local.nodes == (TwinNodes(1, 4, 8000),)
    assert local.failure_rate == 0.0


def test_pilots_that_gave_way_could_not_isolate_payloads() -> None:
    grid, local = LIVES[1], replace(LIVES[4], gave_way=True)
    ces, _ = ces_of_pilots(POLICY, [grid, local], BEGIN, END, 1)
    assert {ce.name: ce.isolates for ce in ces} == {"grid": True, "local": False}


def test_a_node_has_room_for_the_largest_job() -> None:
    (local, grid), _ = ces_of_pilots(POLICY, LIVES, BEGIN, END, 8)
    assert local.nodes == (TwinNodes(1, 8, 8000),)
    assert grid.nodes == (TwinNodes(1, 8),)
