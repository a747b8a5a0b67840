"""Partitions of the policy in Slurm's commands: two CEs of this machine, one of which an administrator disables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests.acceptance.test_slurm_commands import Shell, shared
from tests.instance import Instance, running

pytestmark = pytest.mark.slow

PARTITIONS = """
[ces.second]
site = "here"
type = "local"
processors = 1
wall = 7235
shared_folders = ["/"]

[partitions.short]
ces = ["local"]
default = true

[partitions.long]
ces = ["second"]
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("partitions"), idle=60) as one:
        one.policy += PARTITIONS
        shared(one)
        yield one


@pytest.fixture
def shell(instance: Instance, tmp_path: Path) -> Shell:
    return Shell(instance, tmp_path)


def test_jobs_run_at_the_ces_of_their_partitions(shell: Shell) -> None:
    client = shell.instance.client()
    script = shell.script("job.sh", "#!/bin/sh\necho $SLURM_JOB_PARTITION $PILOTAGE_CE\n")
    expected = {
        ("-o", "default.txt"): ("short", "local"),
        ("-o", "named.txt", "-p", "long"): ("long", "second"),
        ("-o", "both.txt", "-p", "long,short"): None,
    }
    jobs = {words: shell.submit(*words, script) for words in expected}
    client.wait([int(job) for job in jobs.values()])
    for words, job in jobs.items():
        partition, ce = shell.text(words[1]).split()
        [listed] = client.jobs(Selection(ids=[int(job)]))
        assert listed.ce == ce
        assert (partition, ce) == (
            expected[words] or {"local": ("short", "local"), "second": ("long", "second")}[ce]
        )
        assert shell.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "Partition").stdout == f"{partition}\n"
        shown = shell.run("scontrol", "-o", "show", "job", job).stdout
        assert f" Partition={partition} " in shown


def test_lists_of_waiting_jobs_and_of_partitions(shell: Shell) -> None:
    job = shell.submit("-H", "-p", "short,long", "--wrap", "true")
    assert shell.run("squeue", "-h", "-j", job, "-o", "%P").stdout == "short,long\n"
    assert shell.run("squeue", "-h", "-p", "long", "-o", "%i").stdout == f"{job}\n"
    assert shell.run("squeue", "-h", "-p", "other", "-o", "%i").stdout == ""
    assert shell.run("scancel", "-p", "long").returncode == 0
    assert shell.run("squeue", "-h", "-j", job).stdout == ""
    summary = shell.run("sinfo", "-h", "-s", "-o", "%P %a %l").stdout.splitlines()
    assert summary[1] == "long up 2:00:00"
    assert summary[0].startswith("short* up ")
    shown = shell.run("scontrol", "-o", "show", "partition", "long").stdout.split()
    assert {"PartitionName=long", "Default=NO", "MaxTime=02:00:00", "State=UP"} <= set(shown)
    refused = shell.run("sbatch", "-p", "short,local", "--wrap", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("sbatch: error: invalid partition specified: local\n")
    assert shell.instance.cli("ce", "disable", "second", "--reason", "new disks").returncode == 0
    assert shell.run("sinfo", "-h", "-s", "-p", "long", "-o", "%a").stdout == "down\n"
    assert "State=DOWN" in shell.run("scontrol", "show", "partition", "long").stdout
    assert shell.instance.cli("ce", "enable", "second").returncode == 0
