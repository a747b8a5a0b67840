"""Snakemake with its own plug-in for Slurm, both unchanged, on Slurm's commands of Pilotage."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_slurm_commands import Shell, shared
from tests.acceptance.test_snakemake import Workflow, environment
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]

SNAKEFILE = """
rule all:
    input: "calls.txt", "bad.txt"
rule map:
    input: "data/{sample}.txt"
    output: temp("mapped/{sample}.txt")
    threads: 2
    resources: mem_mb=305, runtime=20
    shell: "rev {input} > {output}; echo $SLURM_JOB_ID {threads} >> jobs.txt"
rule call:
    input: expand("mapped/{sample}.txt", sample=["A", "B"])
    output: "calls.txt"
    resources: mem_mb=300
    shell: "sort {input} > {output}"
rule bad:
    output: "bad.txt"
    resources: mem_mb=300
    shell: "echo no calibration for run 17 >&2; exit 3"
"""

WAITING = """
rule all:
    input: expand("ended-{n}", n=range(2))
rule wait:
    output: "ended-{n}"
    resources: mem_mb=300
    shell: "touch begun-{wildcards.n}; until test -e go; do sleep 0.1; done; touch {output}"
"""


class SlurmWorkflow(Workflow):
    """A workflow that is started as on a cluster, with the commands in PATH."""

    def __init__(self, instance: Instance, folder: Path, text: str, check_period: int = 1) -> None:
        """`check_period`: seconds between its looks at its jobs."""
        super().__init__(instance, folder, text)
        self.check_period = str(check_period)
        self.environment = Shell(instance, folder).environment | {"HOME": str(instance.home)}

    def words(self, *words: str) -> list[str]:
        first, next_ones = "--slurm-init-seconds-before-status-checks", "--seconds-between-status-checks"
        often = [first, self.check_period, next_ones, self.check_period]
        command = [self.python, "-m", "snakemake", "--executor", "slurm", "--slurm-no-account"]
        return [*command, "--jobs", "10", *often, *words]

    def slurm_states(self) -> dict[str, str]:
        """The states of the jobs by the comments of the plug-in, which name rule and wildcards."""
        client = self.instance.client()
        details = [client.job(job.id) for job in client.jobs()]
        return {one.description["environment"]["SLURM_JOB_COMMENT"]: one.job.state for one in details}

    def asked(self, comment: str) -> tuple[object, ...]:
        """What the job asks for."""
        client = self.instance.client()
        for job in client.jobs():
            found = client.job(job.id).description
            if found["environment"]["SLURM_JOB_COMMENT"] == comment:
                return tuple(found.get(field) for field in ("processors", "memory", "wall_time", "folder"))
        raise AssertionError(comment)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    environment()
    with running(tmp_path, idle=60) as one:
        shared(one)
        yield one


def test_a_workflow_with_a_rule_that_fails(instance: Instance, tmp_path: Path) -> None:
    (folder := tmp_path / "work").mkdir()
    workflow = SlurmWorkflow(instance, folder, SNAKEFILE)
    (folder / "data").mkdir()
    for sample in "AB":
        (folder / "data" / f"{sample}.txt").write_text(f"{sample}1\n")
    code, messages = workflow.run("--keep-going")
    assert code == 1, messages
    assert (folder / "calls.txt").read_text().split() == ["1A", "1B"], messages
    assert not list(folder.glob("mapped/*"))
    good = {"rule_map_wildcards_A": "Done", "rule_map_wildcards_B": "Done", "rule_call": "Done"}
    assert workflow.slurm_states() == good | {"rule_bad": "Failed"}
    assert workflow.asked("rule_map_wildcards_A") == (2, 305, 1200, str(folder))
    numbers = {int(line.split()[0]) for line in (folder / "jobs.txt").read_text().splitlines()}
    assert numbers <= {job.id for job in instance.client().jobs()}
    assert "failed, SLURM status is: 'FAILED'. Reason: Unknown." in messages
    [log] = (folder / ".snakemake/slurm_logs/rule_bad").rglob("*.log")
    assert "no calibration for run 17" in log.read_text()


def test_an_interrupted_snakemake_cancels_its_jobs(instance: Instance, tmp_path: Path) -> None:
    (folder := tmp_path / "work").mkdir()
    # During a look at its jobs Snakemake 9 forgets them, and an interrupt cancels none: this one never looks.
    workflow = SlurmWorkflow(instance, folder, WAITING, check_period=3600)
    cancelled = {f"rule_wait_wildcards_{n}": "Killed" for n in range(2)}
    with workflow.started() as snakemake:
        until(lambda: list(folder.glob("begun-*")), within=3 * PATIENCE, what="a rule that runs")
        until(lambda: workflow.messages.count("submitted with SLURM jobid") == 2, what="both jobs")
        snakemake.send_signal(signal.SIGINT)
        until(lambda: workflow.slurm_states() == cancelled, what="the cancelled jobs")
    assert not list(folder.glob("ended-*"))
