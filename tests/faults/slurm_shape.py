"""Slurm as a batch system whose commands fail, and a server that has it as its only CE."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.faults.batch_frame import CommandShape, FaultyCommands
from tests.instance import Instance, processes_with

JOBS = 12


def most_tries(seconds: float) -> int:
    """How often sbatch may be called for a CE that is refused, in this time.

    It pauses for 10 s after the first refusal, then for twice as long. A try has three calls at most: one may ask
    whether pilots could ever start, and a refused array may be tried as one pilot.
    """
    calls, ends, pause = 3, 10.0, 20.0
    while seconds >= ends:
        calls, ends, pause = calls + 3, ends + pause, 2 * pause
    return calls


def mend(cluster: slurm.Cluster) -> None:
    """Open the partition and the nodes that a test has closed."""
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    cluster.run("scontrol", "update", f"nodename={','.join(cluster.nodes)}", "state=resume")


SLURM = CommandShape(
    ce="slurm",
    submit_call="sbatch",
    release_call="release",
    listings=tuple(("squeue", fault) for fault in ("partial", "garbage", "empty", "fail")),
    commands=("sbatch", "squeue", "scontrol", "scancel"),
    left=lambda cluster: cluster.run("squeue", "-h"),
    part=40,
    garbage="slurm_load_jobs error: Unexpected message received",
    failure="slurm_load_jobs error: Unable to contact slurm controller",
    start=slurm.Cluster.start_controller,
    mend=mend,
    jobs=JOBS,
    # A listing calls scontrol too, so the release has faults of its own.
    renamed='case "$name $1" in "scontrol release") name=release ;; esac',
    more="""\
fail-after) "$real" "$@" >/dev/null; exit 1 ;;
  wrong-id) "$real" "$@" >/dev/null; echo 999999 ;;
  twice) script=$(cat); echo "$script" | "$real" "$@" >/dev/null; echo "$script" | "$real" "$@" ;;""",
)
FaultyCluster = FaultyCommands[slurm.Cluster]
submit, assert_all_done = SLURM.submit, SLURM.assert_all_done


@contextmanager
def slurm_server(faulty: FaultyCluster, folder: Path, **limits: Any) -> Iterator[Instance]:
    """`limits`: keys of the CE."""
    with instance_on(faulty.system, folder, environment=faulty.environment, **limits) as made:
        # Pilots shall wait in a partition that is down, which the director would not submit them to.
        head, mark, rest = made.policy.partition("[director]")
        made.policy = f'{head}[ces.slurm.attributes]\nGlueCEStateStatus = "Production"\n{mark}{rest}'
        yield made


def processes_of(cluster: slurm.Cluster, batch_id: str) -> list[int]:
    """The pilots' programs of one batch job, found by the variables that Slurm gives them.

    Other tests have clusters with the same batch ids at the same time.
    """
    array, _, task = batch_id.partition("_")
    conf = cluster.environment["SLURM_CONF"]
    return processes_with(SLURM_CONF=conf, SLURM_ARRAY_JOB_ID=array, SLURM_ARRAY_TASK_ID=task)
