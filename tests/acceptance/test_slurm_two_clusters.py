"""A person who knows only Slurm: their own folder of scripts runs on two real Slurm clusters at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import slurm
from tests.acceptance.test_slurm import MATCHED, SLURM_CE
from tests.acceptance.test_slurm_commands import Shell
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE)]

CE = (
    SLURM_CE.replace("[ces.slurm]", "[ces.{name}]")
    + 'shared_folders = ["/"]\n[ces.{name}.slurm]\nconf = "{conf}"\n'
)
PARTITIONS = """
[partitions.any]
sites = ["here"]
default = true
[partitions.north]
ces = ["northern"]
[partitions.south]
ces = ["southern"]
"""
FOLDER = {
    "all.sh": """\
#!/bin/sh
set -e
mkdir logs parts
north=$(sbatch --parsable --partition=north simulate.sh)
south=$(sbatch --parsable --partition=south simulate.sh)
merge=$(sbatch --parsable --dependency=afterok:$north:$south merge.sh)
echo $north $south $merge
""",
    "simulate.sh": """\
#!/bin/bash
#SBATCH --array=1-4%2 --time=20 --output=logs/%A_%a.txt
until [ -e go ]; do sleep 0.2; done
echo "$SLURM_JOB_PARTITION $SLURM_ARRAY_TASK_ID"
echo $((SLURM_ARRAY_TASK_ID * SLURM_ARRAY_TASK_ID)) > parts/$SLURM_JOB_ID
""",
    "merge.sh": """\
#!/bin/bash
#SBATCH --job-name=merge --output=logs/merge.txt
awk '{ sum += $1 } END { print sum }' parts/*
""",
}


@pytest.fixture
def clusters() -> Iterator[dict[str, slurm.Cluster]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(slurm.cluster(nodes=1, processors=4, name=name))
            for name in ("northern", "southern")
        }


@pytest.fixture
def instance(clusters: dict[str, slurm.Cluster], tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    ces = [CE.format(name=name, conf=cluster.environment["SLURM_CONF"]) for name, cluster in clusters.items()]
    made.policy = made.policy.partition("[ces.local]")[0] + "".join(ces) + PARTITIONS + MATCHED
    made.environment = {"PATH": next(iter(clusters.values())).environment["PATH"]}
    try:
        made.start()
        made.apply()
        yield made
    finally:
        made.close()


def test_a_folder_of_scripts_runs_on_two_clusters_at_once(
    instance: Instance, clusters: dict[str, slurm.Cluster], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shell = Shell(instance, folder)
    for name, text in FOLDER.items():
        shell.script(name, text)
    sent = shell.run("sh", "all.sh")
    assert (sent.returncode, sent.stderr) == (0, ""), sent
    north, south, merge = sent.stdout.split()

    def running() -> set[str]:
        return set(shell.run("squeue", "--me", "-h", "-t", "RUNNING", "-o", "%P").stdout.split())

    until(lambda: running() == {"north", "south"}, what="tasks that run in both partitions")
    for cluster in clusters.values():
        assert cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()
    assert shell.run("squeue", "-h", "-j", merge, "-o", "%t %P %r").stdout == "PD any Dependency\n"
    (folder / "go").touch()
    until(lambda: not shell.run("squeue", "--me", "-h").stdout, what="the end of all jobs")
    assert shell.text("logs/merge.txt") == f"{2 * (1 + 4 + 9 + 16)}\n"
    listed = shell.run(
        "sacct", "-X", "-n", "-P", "-j", f"{north},{south},{merge}", "-o", "JobID,Partition,State"
    )
    assert listed.stdout.splitlines() == [
        *(f"{north}_{task}|north|COMPLETED" for task in range(1, 5)),
        *(f"{south}_{task}|south|COMPLETED" for task in range(1, 5)),
        f"{merge}|any|COMPLETED",
    ]
    for array, partition in ((north, "north"), (south, "south")):
        assert [shell.text(f"logs/{array}_{task}.txt") for task in range(1, 5)] == [
            f"{partition} {task}\n" for task in range(1, 5)
        ]
