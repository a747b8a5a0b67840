"""A wall time near a CPU bucket, with real pilots: the job starts, or no pilot starts for it and `why` says so."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest

from pilotage.core.pilots.wall_time import START
from pilotage.wire.jobs import Selection
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

BUCKET = 1000


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("short"), idle=0.2, processors=1) as instance:
        instance.policy += f"[matching]\ncpu_buckets = [500, {BUCKET}]\n"
        yield instance


@pytest.mark.parametrize("beyond", [0, 1, 29, 30, 31, 35, 36, 45])
def test_the_job_starts_or_no_pilot_does(short: Instance, beyond: int) -> None:
    client = short.client()
    client.apply_policy(short.policy.replace("idle =", f"wall = {BUCKET + beyond}\nidle ="))
    before = {pilot.id for pilot in client.pilots()}
    job = client.submit({"executable": "/bin/true", "cpu_time": BUCKET}).first
    # The director looks at both queues in the cycle in which it starts a pilot for this one.
    for _ in range(2):
        marker = client.submit({"executable": "/bin/true", "cpu_time": 500}).first
        short.reaches(marker, "Done")
    until(
        lambda: all(one.ended for one in client.pilots()) or short.job(job).state != "Waiting", what="an end"
    )
    new = [pilot for pilot in client.pilots() if pilot.id not in before]
    # On a loaded machine a pilot may be late: it has less time left than the director expects.
    late = [pilot for pilot in new if (pilot.started or inf) - pilot.submitted > START]
    if short.job(job).state == "Waiting":
        assert beyond < 45 or late
        answer = client.why(job)
        assert (answer.reason, answer.detail) == ("needs", "cpu-time")
        assert f"{BUCKET + beyond} s of wall time" in answer.summary
        assert f"the CPU bucket of this queue is {BUCKET} s" in answer.summary
        client.kill(Selection(ids=[job]))
    else:
        short.reaches(job, "Done")
    # One for each of the three jobs at most: none came in vain.
    assert len(new) <= 3 or late
