"""Leases that are shorter than an outage: a living pilot keeps its job, however the server was away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.audit import audit, audit_postgresql
from tests.faults.pair import Pair
from tests.instance import Instance, until
from tests.postgres import server

pytestmark = pytest.mark.slow

LEASE, AWAY = 10, 8
"""Seconds. What is left of a lease may be as little as two thirds: less than the server is away."""


@pytest.fixture(params=["sqlite", "postgresql"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    database = server().migrated() if request.param == "postgresql" else ""
    url = server().tcp(database) if database else ""
    made = Instance(tmp_path, database_url=url, lease=LEASE, heartbeat=0.5)
    yield made
    made.close()
    if database:
        server().drop(database)


def running_job(instance: Instance, tmp_path: Path) -> int:
    script = f"while [ ! -e {tmp_path}/go-on ]; do sleep 0.05; done"
    job = instance.client().submit({"executable": "sh", "arguments": ["-c", script]}).first
    instance.reaches(job, "Running")
    return job


def away() -> None:
    begin = time.monotonic()
    until(lambda: time.monotonic() - begin > AWAY, what="a restart shorter than the lease")


@pytest.mark.parametrize("how", ["killed", "suspended"])
def test_a_restart_shorter_than_a_short_lease_loses_no_job(
    instance: Instance, tmp_path: Path, how: str
) -> None:
    instance.start()
    instance.apply()
    job = running_job(instance, tmp_path)
    if how == "killed":
        instance.kill_server()
        away()
        instance.start()
    else:
        with instance.suspended():
            away()
    pilot = instance.pilot_of(job)
    (tmp_path / "go-on").touch()
    done = instance.reaches(job, "Done")
    assert (done.attempt, done.failures, pilot.state) == (1, 0, "Running")
    assert "lease-over" not in instance.events(job)
    url = instance.database_url
    instance.close()
    assert (audit_postgresql(url) if url else audit(instance.home)) == {"Done": 1}


def test_a_lease_is_not_over_for_others_while_the_server_that_renews_it_is_away(tmp_path: Path) -> None:
    database = server().empty()
    pair = Pair(tmp_path, server().tcp(database), lease=LEASE, heartbeat=0.5)
    try:
        pair.start()
        job = running_job(pair.first, tmp_path)
        # Pilots speak to the second server; the first one has the duty of leases meanwhile.
        pair.second.kill_server()
        away()
        pair.launch(pair.second)
        (tmp_path / "go-on").touch()
        done = pair.first.reaches(job, "Done")
        assert (done.attempt, done.failures) == (1, 0)
        pair.close()
        assert audit_postgresql(pair.url) == {"Done": 1}
    finally:
        pair.close()
        server().drop(database)
