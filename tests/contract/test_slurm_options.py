"""Each option of `[ces.NAME.slurm]` reaches the batch job of a real Slurm."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest

from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.slurm.adapter import SlurmBatch
from tests import slurm
from tests.deadlines import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=4) as made:
        window = ("starttime=now", "duration=60", "nodes=n1", "flags=ignore_jobs")
        made.run("scontrol", "create", "reservation", "reservationname=ours", "users=root", *window)
        yield made


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (SlurmOptions(partition="long"), "Partition=long"),
        (SlurmOptions(account="physics"), "Account=physics"),
        (SlurmOptions(constraint="other"), "Features=other"),
        (SlurmOptions(gres="gpu:1"), "TresPerNode=gres:gpu:1"),
        (SlurmOptions(reservation="ours"), "Reservation=ours"),
        (SlurmOptions(log_folder="/tmp"), "StdOut=/tmp/pilotage-options-0.log"),
    ],
)
def test_an_option_reaches_the_batch_job(cluster: slurm.Cluster, options: SlurmOptions, shown: str) -> None:
    batch = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), options)
    receipt = batch.submit(BatchSubmission("pilotage-options", 1, Shape(1, 100, 60.0), "#!/bin/sh\n"))
    try:
        assert shown in cluster.run("scontrol", "show", "job", receipt.batch_ids[0]).split()
    finally:
        batch.cancel_tasks([receipt.array], batch.list_pilots().epoch)


@pytest.mark.parametrize(
    ("options", "shape", "reason"),
    [
        (SlurmOptions(gres="gpu:3"), Shape(1), "not available"),
        (SlurmOptions(gres="nosuch:1"), Shape(1), "gres"),
        (SlurmOptions(constraint="nosuch"), Shape(1), "Invalid feature specification"),
        (SlurmOptions(reservation="nosuch"), Shape(1), "reservation is invalid"),
        (SlurmOptions(partition="nosuch"), Shape(1), "Invalid partition name"),
        (SlurmOptions(partition="long", constraint="other"), Shape(1), "not available"),
        (SlurmOptions(), Shape(100), "not available"),
        (SlurmOptions(constraint="other", gres="gpu:2"), Shape(2), ""),
    ],
)
def test_slurm_is_asked_whether_it_accepts_the_options(
    cluster: slurm.Cluster, options: SlurmOptions, shape: Shape, reason: str
) -> None:
    refusal = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), options).check(shape)
    assert reason in refusal
    assert bool(refusal) is bool(reason)
