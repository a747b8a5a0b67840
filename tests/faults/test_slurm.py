"""Faults of a real Slurm, of its administrator and of the server between two steps of a submission."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator

import pytest

from tests import slurm
from tests.faults.batch_frame import BatchFaults, leave_nothing
from tests.faults.slurm_shape import (
    JOBS,
    SLURM,
    FaultyCluster,
    assert_all_done,
    processes_of,
    slurm_server,
    submit,
)
from tests.instance import Instance, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8, MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def server(faulty: FaultyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with slurm_server(faulty, tmp_path_factory.mktemp("server"), settle="2", max_waiting="8") as made:
        yield made


class TestFaultsOfAllSystems(BatchFaults):
    shape = SLURM


def test_an_administrator_who_cancels_running_pilots(instance: Instance, faulty: FaultyCluster) -> None:
    jobs, gate = SLURM.submit_held(instance, 6)
    faulty.system.run("scancel", "--user=root", "--state=RUNNING")
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 6)


def test_an_administrator_who_cancels_waiting_pilots(instance: Instance, faulty: FaultyCluster) -> None:
    cluster = faulty.system
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    jobs = submit(instance)
    until(lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T"), what="a waiting pilot")
    cluster.run("scancel", "--user=root", "--state=PENDING")
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    assert_all_done(instance, cluster, jobs)


def test_a_pilot_that_an_administrator_kills_on_its_node(instance: Instance, faulty: FaultyCluster) -> None:
    jobs, gate = SLURM.submit_held(instance, 6)
    living = [pilot for pilot in instance.client().pilots() if not pilot.ended]
    pids = [pid for pilot in living for pid in processes_of(faulty.system, pilot.batch_id)]
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 6)


def test_a_node_that_goes_down(instance: Instance, faulty: FaultyCluster) -> None:
    jobs, gate = SLURM.submit_held(instance, 6)
    faulty.system.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    gate.touch()
    try:
        assert_all_done(instance, faulty.system, jobs, 6)
    finally:
        faulty.system.run("scontrol", "update", "nodename=n1", "state=resume")


def test_an_administrator_who_requeues_a_running_pilot(instance: Instance, faulty: FaultyCluster) -> None:
    """A batch job that was submitted with --no-requeue is not started again."""
    jobs, gate = SLURM.submit_held(instance, 6)
    for job in faulty.system.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split():
        faulty.system.run("scontrol", "requeue", job)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 6)


def test_a_pilot_that_is_held_again_goes_on_when_it_is_released(
    instance: Instance, faulty: FaultyCluster
) -> None:
    cluster = faulty.system
    # The submissions of the last test end with the next listing.
    before = {stamp for stamp, _ in open_submissions(instance, "phase")}
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    jobs = submit(instance)
    client = instance.client()

    def released() -> bool:
        """Whether the batch system has all pilots and none is held, and the server has seen so."""
        states = cluster.run("squeue", "-h", "-r", "-o", "%T").split()
        phases = [phase for stamp, phase in open_submissions(instance, "phase") if stamp not in before]
        return len(states) == JOBS // 2 and set(states) == {"PENDING"} and set(phases) == {"released"}

    # Then the server does not end the hold that follows.
    until(released, what="a listing without a hold")
    for job in cluster.run("squeue", "-h", "-o", "%F").split():
        cluster.run("scontrol", "hold", job)
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    until(
        lambda: any("Held" in line for _, line in open_submissions(instance, "reason")),
        what="the reason in the store",
    )
    assert client.counts(jobs).states.get("Done") is None
    for job in cluster.run("squeue", "-h", "-o", "%F").split():
        cluster.run("scontrol", "release", job)
    assert_all_done(instance, cluster, jobs)


def test_what_a_failed_test_leaves_is_ended(instance: Instance, faulty: FaultyCluster) -> None:
    """Else one failure would make all later tests of the module fail."""
    cluster, client = faulty.system, instance.client()
    running, _ = SLURM.submit_held(instance, 2)
    faulty.set("squeue", "always-garbage")
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    waiting = submit(instance)
    cluster.kill()
    leave_nothing(instance, faulty)
    assert [client.counts(jobs).states for jobs in (running, waiting)] == [{"Killed": 2}, {"Killed": JOBS}]
    assert not cluster.run("squeue", "-h")
    jobs = submit(instance, count=2)
    assert_all_done(instance, cluster, jobs, 2)


def open_submissions(instance: Instance, column: str) -> list[tuple[str, str]]:
    """The stamps of the submissions that have not ended, each with a column, as the store has them."""
    sql = f"SELECT stamp, {column} FROM pilot_submissions WHERE ended IS NULL"
    with sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True) as connection:
        return connection.execute(sql).fetchall()
