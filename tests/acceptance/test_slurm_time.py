"""The wall time of pilots in a real Slurm: jobs start where they can end, and each core-second is accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

WALL, LONG, SHORT, RUN = 200, 165, 5, 30
"""Seconds: of a pilot, of the two CPU buckets, and of the job that uses up a pilot's time, at least.

Both jobs fit for many seconds before and after, so that a loaded machine changes nothing.
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=1, processors=4) as made:
        yield made


def test_a_pilot_near_its_end_takes_the_short_job_and_a_fresh_one_the_long(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    with instance_on(
        cluster, tmp_path, wall=str(WALL), pilot_processors="1", pilot_memory="0", idle="3"
    ) as instance:
        instance.policy += f"[matching]\ncpu_buckets = [{SHORT}, {LONG}]\n"
        instance.apply()
        client = instance.client()
        gate = tmp_path / "gate"
        script = f"sleep {RUN}; until [ -e {gate} ]; do sleep 0.1; done"
        described = {"executable": "sh", "arguments": ["-c", script], "cpu_time": SHORT}
        first = client.submit(described).first
        instance.reaches(first, "Running")
        client.disable_ce("slurm", "only the first pilot may ask")
        # A slow machine may have begun another pilot before the first one had its job.
        until(lambda: sum(not pilot.ended for pilot in client.pilots()) == 1, what="the end of other pilots")
        # The long job comes first, and its CPU bucket goes first in the draw.
        long = client.submit({"executable": "true", "cpu_time": LONG}).first
        short = client.submit({"executable": "true", "cpu_time": SHORT}).first
        gate.touch()
        instance.reaches(short, "Done", within=2 * PATIENCE)
        assert instance.job(long).state == "Waiting"
        assert client.job(short).job.pilot == client.job(first).job.pilot
        client.enable_ce("slurm")
        instance.reaches(long, "Done", within=2 * PATIENCE)
        assert client.job(long).job.pilot != client.job(first).job.pilot
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
        _check_costs(instance)


def _check_costs(instance: Instance) -> None:
    done = instance.cli("cost", "--json", "--ce", "slurm")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    total = report["total"]
    assert total["payload"] >= RUN
    assert total["startup"] > 0, "Slurm starts a batch job before its pilot can call"
    assert total["idle"] > 0
    assert total["lost"] == 0
    parts = sum(total[kind] for kind in ("payload", "startup", "idle", "lost"))
    assert parts == pytest.approx(total["total"])
    lives = [
        pilot.ended - pilot.started for pilot in instance.client().pilots() if pilot.ended and pilot.started
    ]
    assert total["total"] - total["startup"] == pytest.approx(sum(lives))
    table = instance.cli("cost").stdout.splitlines()
    assert table[0].split("\t") == ["ce", "payload", "startup", "idle", "lost", "total", "efficiency"]
    assert table[1].startswith("slurm\t")
