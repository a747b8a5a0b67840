"""Pilots as the director looks back at them."""

from __future__ import annotations

from dataclasses import replace

from pilotage.services.director.look_back import last_seen
from tests.unit.services.bench import Bench


def test_pilots_of_one_array_are_of_one_submission(bench: Bench) -> None:
    """So they count as one event when a site preempts them all."""
    pilots = [bench.pilot() for _ in range(3)]
    seen = [
        last_seen(replace(bench.pilot_row(pilot.id), stamp=f"pilot-7/{place}"), draining=False)
        for place, pilot in enumerate(pilots)
    ]
    assert {one.submission for one in seen} == {"pilot-7"}
