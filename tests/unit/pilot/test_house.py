from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pilotage.pilot.codec import decode, encode
from pilotage.pilot.folders import stays_inside
from pilotage.pilot.job_rate import JobRate
from pilotage.wire.pilot import EnrolResponse, ExchangeRequest, ExchangeResponse, Node, Take

SRC = Path(__file__).parents[3] / "src" / "pilotage"


def test_the_pilot_runs_on_python_3_9() -> None:
    vermin = Path(sys.executable).parent / "vermin"
    if not vermin.exists():
        pytest.skip("vermin is not installed beside this Python")
    said = subprocess.run(
        [str(vermin), "-t=3.9-", "--no-tips", str(SRC / "pilot"), str(SRC / "wire")],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout


def test_bodies_survive_the_journey_and_strange_fields() -> None:
    request = ExchangeRequest(3, take=Take(1, 2, Node(tags=["a"])))
    assert decode(ExchangeRequest, encode(request)) == request
    offer = b'{"job": 1, "epoch": 2, "payload": {"executable": "x"}}'
    answer = b'{"incarnation": 1, "from": "the future", "offers": [' + offer + b"]}"
    assert decode(ExchangeResponse, answer).offers[0].payload.executable == "x"
    with pytest.raises(TypeError):
        decode(EnrolResponse, b"{}")
    with pytest.raises(ValueError, match="object"):
        decode(EnrolResponse, b"[]")


@pytest.mark.parametrize("name", ["", "/a", "..", "a/../b", ".", "a\0b"])
def test_names_that_lead_out(name: str) -> None:
    assert not stays_inside(name)


def test_only_short_payloads_are_held_ahead() -> None:
    job_rate = JobRate()
    assert job_rate.jobs_ahead(4) == 0
    for _ in range(5):
        job_rate.add(0.05)
    assert job_rate.jobs_ahead(2) == 10
    for _ in range(20):
        job_rate.add(5.0)
    assert job_rate.jobs_ahead(2) == 0
