"""Changes that an administrator of a real Slurm makes while pilots wait and run, and nodes of several sizes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.faults.slurm_shape import FaultyCluster, assert_all_done, slurm_server, submit
from tests.faults.test_slurm_lies import SETTLE, attempts, let_end, running, wait_for_listings
from tests.instance import Instance, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8, sizes={"n2": 4}, MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def server(faulty: FaultyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with slurm_server(faulty, tmp_path_factory.mktemp("server"), settle=str(SETTLE), max_waiting="6") as made:
        yield made


@contextmanager
def changed_policy(instance: Instance, old: str, new: str) -> Iterator[None]:
    """The server has another policy for a while."""
    policy = instance.policy
    assert old in policy
    instance.policy = policy.replace(old, new)
    instance.apply()
    try:
        yield
    finally:
        instance.policy = policy
        instance.apply()


def kinds_of_events(instance: Instance) -> set[str]:
    with closing(sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True)) as connection:
        return {row[0] for row in connection.execute("SELECT kind FROM events")}


def has_ended_again(cluster: slurm.Cluster, batch_job: str) -> bool:
    """Whether a batch job was queued twice and has ended."""
    words = cluster.run("scontrol", "show", "job", batch_job).split()
    facts = dict(word.partition("=")[::2] for word in words)
    if facts["JobState"] == "PENDING":
        # Slurm lets a requeued batch job wait for two minutes from the end of its first run.
        cluster.run("scontrol", "update", f"jobid={batch_job}", "starttime=now")
    # A server that sees the batch job of an ended pilot wait for longer than `settle` cancels it.
    return facts.get("Restarts") == "1" and facts["JobState"] in ("COMPLETED", "FAILED", "CANCELLED")


def running_batch_jobs(faulty: FaultyCluster) -> list[str]:
    return faulty.system.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()


def test_suspended_pilots_go_on(instance: Instance, faulty: FaultyCluster) -> None:
    jobs = running(instance, 2)
    ids = running_batch_jobs(faulty)
    for job in ids:
        faulty.system.run("scontrol", "suspend", job)
    until(
        lambda: faulty.system.run("squeue", "-h", "-o", "%T").split().count("SUSPENDED") == 2,
        what="the suspension",
    )
    wait_for_listings(instance, 2 * SETTLE)
    for job in ids:
        faulty.system.run("scontrol", "resume", job)
    let_end(instance, faulty, jobs, 2)
    assert attempts(instance, jobs) == [1, 1]


def test_a_batch_job_that_is_started_again_leaves_without_an_alarm(
    instance: Instance, faulty: FaultyCluster
) -> None:
    """An administrator allows the requeue that the submission forbids. The first program says goodbye."""
    cluster, client = faulty.system, instance.client()
    jobs = running(instance, 1)
    [job] = client.jobs(jobs)
    first = instance.pilot_of(job.id)
    [batch_job] = running_batch_jobs(faulty)
    cluster.run("scontrol", "update", f"jobid={batch_job}", "requeue=1")
    cluster.run("scontrol", "requeue", batch_job)
    until(lambda: "PENDING" in cluster.run("squeue", "-h", "-j", batch_job, "-o", "%T"), what="the requeue")
    until(lambda: client.pilot(first.id).pilot.ended, what="the first program's end")
    until(lambda: has_ended_again(cluster, batch_job), what="the newcomer's end")
    let_end(instance, faulty, jobs, 1)
    # The job went back without a try that counts, and another pilot has done it.
    assert attempts(instance, jobs) == [2]
    assert [job.failures for job in client.jobs(jobs)] == [0]
    assert "alarm" not in kinds_of_events(instance)


def test_a_partition_and_a_reservation_that_change(instance: Instance, faulty: FaultyCluster) -> None:
    cluster, client = faulty.system, instance.client()

    def reasons() -> set[str]:
        """The reasons of the waits that the site ends by itself, or that are cancelled."""
        return {wait.reason for wait in client.ce("slurm").ce.waits if (wait.wait, wait.action) == SITE}

    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    jobs = submit(instance, count=4)
    until(reasons, what="the reason of the wait")
    assert "cancelled in 7 d" in instance.cli("ce", "list").stdout
    cluster.run("scontrol", "update", "partitionname=short", "state=inactive")
    until(lambda: any("PartitionInactive" in reason for reason in reasons()), what="the new reason")
    cluster.run(
        *("scontrol", "create", "reservation", "reservationname=test", "starttime=now", "duration=60"),
        *("users=daemon", "nodes=n1"),
    )
    for batch_job in cluster.run("squeue", "-h", "-o", "%F").split():
        cluster.run("scontrol", "update", f"jobid={batch_job}", "partition=long")
    wait_for_listings(instance, SETTLE)
    assert client.counts(jobs).states == {"Waiting": 4}
    cluster.run("scontrol", "delete", "reservationname=test")
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    assert_all_done(instance, cluster, jobs, 4)


SITE = ("site", "cancel")


def test_a_partition_that_takes_no_submission_is_no_failure_of_jobs(
    instance: Instance, faulty: FaultyCluster
) -> None:
    cluster = faulty.system
    cluster.run("scontrol", "update", "partitionname=short", "state=inactive")
    jobs = submit(instance, count=2)
    until(lambda: "partition not available" in instance.cli("ce", "list").stdout, what="the pause")
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    instance.cli("ce", "enable", "slurm")
    assert_all_done(instance, cluster, jobs, 2)


def test_batch_jobs_that_can_never_start_are_cancelled(instance: Instance, faulty: FaultyCluster) -> None:
    """The feature that they ask for goes after their release."""
    cluster, client = faulty.system, instance.client()
    attributes = "[ces.slurm.attributes]"
    with changed_policy(instance, attributes, f'[ces.slurm.slurm]\nconstraint = "first"\n{attributes}'):
        cluster.run("scontrol", "update", "partitionname=short", "state=down")
        jobs = submit(instance, count=2)
        until(lambda: client.ce("slurm").ce.waits, what="waiting pilots")
        try:
            cluster.run(
                "scontrol", "update", "nodename=n1", "availablefeatures=other", "activefeatures=other"
            )
            cluster.run("scontrol", "update", "partitionname=short", "state=up")
            until(lambda: "BadConstraints" in instance.cli("ce", "list").stdout, what="the pause")
            until(lambda: not cluster.run("squeue", "-h"), what="the cancel")
        finally:
            cluster.run(
                "scontrol", "update", "nodename=n1", "availablefeatures=first", "activefeatures=first"
            )
    assert_all_done(instance, cluster, jobs, 2)


def test_two_servers_of_one_account_leave_each_other_alone(
    instance: Instance, faulty: FaultyCluster, tmp_path: Path
) -> None:
    ours = running(instance, 2)
    other = Instance(tmp_path)
    other.policy, other.environment = instance.policy, faulty.system.environment
    try:
        other.start()
        other.apply()
        theirs = running(other, 2)
        faulty.set("squeue", "always-empty")
        wait_for_listings(instance, 2 * SETTLE)
        faulty.clear()
        wait_for_listings(instance, SETTLE)
        (other.home / "gate").touch()
        client = other.client()
        until(lambda: client.counts(theirs).states.get("Done") == 2, what="the jobs of the other server")
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of its pilots")
        assert attempts(other, theirs) == [1, 1]
    finally:
        other.close()
    let_end(instance, faulty, ours, 2)
    assert attempts(instance, ours) == [1, 1]


def test_nodes_of_several_sizes(instance: Instance, faulty: FaultyCluster) -> None:
    """Pilots of six cores fit the wide node only; the others wait for it and are not cancelled."""
    cluster, client = faulty.system, instance.client()
    with changed_policy(instance, "pilot_processors = 2", "pilot_processors = 6"):
        jobs = running(instance, 3)
        until(lambda: "n1|RUNNING" in cluster.run("squeue", "-h", "-o", "%N|%T"), what="a pilot")
        assert "n2" not in cluster.run("squeue", "-h", "-o", "%N")
        let_end(instance, faulty, jobs, 3)
        assert client.ce("slurm").ce.alike == 0


def array_of(batch_id: str) -> str:
    return batch_id.partition("_")[0]


def test_pilots_of_one_array_that_are_preempted_before_their_first_job(
    instance: Instance, faulty: FaultyCluster
) -> None:
    """They count as one. The command line tells the pause that they cause, and ends it."""
    cluster, client = faulty.system, instance.client()
    before = {pilot.id for pilot in client.pilots()}

    def started() -> list[str]:
        new = (pilot for pilot in client.pilots() if pilot.id not in before)
        return [pilot.batch_id for pilot in new if pilot.state == "Running"]

    def preempt(batch_id: str) -> None:
        cluster.run("scancel", batch_id)
        until(lambda: batch_id not in started(), what="the end of a pilot")
        # The next one ends in another cycle.
        wait_for_listings(instance, 0.1)

    def is_told() -> bool:
        return "no pilots for 1 task queue" in instance.cli("ce", "list").stdout

    with changed_policy(instance, "idle = 2", "idle = 200"):
        # No node has this name, which only a pilot learns.
        job = {"executable": "true", "processors": 2, "requirements": 'other.Hostname == "nowhere"'}
        jobs = Selection(submission=client.submit(job, values=range(6)).submission)
        first = until(lambda: now if len(now := started()) == 6 else None, what="six pilots")
        # A slow machine submits them in two arrays; the larger one is preempted.
        arrays = Counter(array_of(batch_id) for batch_id in first)
        (array, _), *_ = arrays.most_common(1)
        preempted, *others = [batch_id for batch_id in first if array_of(batch_id) == array]
        assert others
        preempt(preempted)
        pause = until(lambda: client.ce("slurm").ce.until, what="the pause")
        for batch_id in others:
            preempt(batch_id)
            assert client.ce("slurm").ce.until in (pause, None)
        second = until(lambda: {*started()} - {*first}, what="the next array")
        preempt(min(second))
        until(is_told, what="the second pause")
        assert instance.cli("ce", "enable", "slurm").stdout.strip() == "CE slurm is enabled"
        until(lambda: not is_told(), what="the end of the pause")
        until(lambda: {*started()} - {*first} - second, what="the next pilots")
        client.kill(jobs)
    cluster.run("scancel", "--user=root")
    until(lambda: not cluster.run("squeue", "-h"), what="the end of all batch jobs")
