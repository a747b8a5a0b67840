"""Faults of a real Slurm that last, and commands that lie: with exit 0, with exit 1, with wrong ids.

No job is lost, none is done twice, and no living pilot is given up.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.faults.batch_frame import wait_for_use
from tests.faults.slurm_shape import FaultyCluster, assert_all_done, slurm_server, submit
from tests.instance import Instance, until

SETTLE = 2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8, MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def server(faulty: FaultyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with slurm_server(faulty, tmp_path_factory.mktemp("server"), settle=str(SETTLE)) as made:
        yield made


def wait_for_listings(instance: Instance, seconds: float) -> None:
    """Wait until listings of this many seconds of the server's clock were taken in."""
    client = instance.client()
    first = until(lambda: client.ce("slurm").ce.listed, what="a listing")
    until(lambda: (client.ce("slurm").ce.listed or 0.0) > first + seconds, what="further listings")


def running(instance: Instance, count: int) -> Selection:
    """So many jobs that run until they are told to end, each in a pilot of its own."""
    gate = instance.home / "gate"
    gate.unlink(missing_ok=True)
    script = f"until [ -e {gate} ]; do sleep 0.1; done"
    job = {"executable": "sh", "arguments": ["-c", script], "processors": 2}
    sent = instance.client().submit(job, values=range(count))
    jobs, client = Selection(submission=sent.submission), instance.client()
    until(lambda: client.counts(jobs).states.get("Running") == count, what=f"{count} running jobs")
    return jobs


def let_end(instance: Instance, faulty: FaultyCluster, jobs: Selection, count: int) -> None:
    (instance.home / "gate").touch()
    assert_all_done(instance, faulty.system, jobs, count)


def attempts(instance: Instance, jobs: Selection) -> list[int]:
    return [instance.events(job.id).count("confirmed") for job in instance.client().jobs(jobs)]


def test_a_listing_that_says_nothing_for_longer_than_settle_ends_no_work(
    instance: Instance, faulty: FaultyCluster
) -> None:
    client = instance.client()
    jobs = running(instance, 5)

    def living() -> set[int]:
        return {pilot.id for pilot in client.pilots() if not pilot.ended}

    # A pilot without a job leaves by itself.
    until(lambda: len(living()) == 5, what="the end of idle pilots")
    alive = living()
    faulty.set("squeue", "always-empty")
    wait_for_listings(instance, 4 * SETTLE)
    assert living() == alive
    assert client.ce("slurm").ce.unlisted == 5
    assert "the last listing lacks 5 of its pilots" in instance.cli("ce", "list").stdout
    faulty.clear()
    until(lambda: client.ce("slurm").ce.unlisted == 0, what="a listing with all pilots")
    let_end(instance, faulty, jobs, 5)
    assert attempts(instance, jobs) == [1] * 5
    assert {pilot.state for pilot in client.pilots() if pilot.id in alive} == {"Done"}


def test_a_release_that_lies_is_given_again(instance: Instance, faulty: FaultyCluster) -> None:
    used = faulty.set("release", "empty")
    jobs = submit(instance, count=4)
    wait_for_use(used)
    assert_all_done(instance, faulty.system, jobs, 4)


def test_releases_that_never_have_an_effect_end(instance: Instance, faulty: FaultyCluster) -> None:
    faulty.set("release", "always-empty")
    client = instance.client()
    jobs = submit(instance, count=2)
    until(lambda: "after 5 releases" in client.ce("slurm").ce.reason, what="the limit")
    until(lambda: not faulty.system.run("squeue", "-h"), what="the cancel")
    faulty.clear()
    instance.cli("ce", "enable", "slurm")
    assert_all_done(instance, faulty.system, jobs, 2)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("sbatch", "fail-after"),
        ("sbatch", "empty"),
        ("sbatch", "wrong-id"),
        ("sbatch", "twice"),
        ("release", "fail-after"),
    ],
)
def test_a_command_that_lies(instance: Instance, faulty: FaultyCluster, command: str, fault: str) -> None:
    used = faulty.set(command, fault)
    jobs = submit(instance, count=6)
    wait_for_use(used)
    assert_all_done(instance, faulty.system, jobs, 6)


def test_a_cold_start_of_the_controller(instance: Instance, faulty: FaultyCluster) -> None:
    """It has forgotten all jobs, waiting and running, and begins its ids anew."""
    jobs = submit(instance, seconds=1, count=8)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    faulty.system.kill()
    faulty.system.start_controller(cold=True)
    try:
        assert_all_done(instance, faulty.system, jobs, 8)
    finally:
        # Slurm drains a node that still has a job with an id that it gives again.
        faulty.system.run("scontrol", "update", "nodename=n1,n2", "state=resume")
