"""Workflows on the command line of Snakemake: each starts as a user's does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from snakemake_executor_plugin_pilotage.descriptions import LONGEST_LABEL, label_of

from pilotage.client import Client, Selection

TUTORIAL = """
SAMPLES = ["A", "B", "C"]
rule all:
    input: "calls.txt"
rule map:
    input: "data/{sample}.txt"
    output: "mapped/{sample}.txt"
    threads: 2
    resources: mem_mb=105, disk_mb=105, runtime=5
    shell: "rev {input} > {output}"
rule sort:
    input: "mapped/{sample}.txt"
    output: "sorted/{sample}.txt"
    log: "logs/{sample}.log"
    shell: "sort {input} > {output} 2> {log}"
rule call:
    input: expand("sorted/{sample}.txt", sample=SAMPLES)
    output: "calls.txt"
    resources: pilotage_user_priority=7
    shell: "cat {input} > {output}"
"""

FAILING = """
rule all:
    input: "grown.txt", "bad.txt"
rule grown:
    output: "grown.txt"
    resources: mem_mb=lambda wildcards, attempt: attempt * 100
    shell: "echo {resources.mem_mb} >> tries; test {resources.mem_mb} -ge 200; touch {output}"
rule bad:
    output: "bad.txt"
    shell: "echo no calibration for run 17 >&2; exit 3"
rule refused:
    output: "refused.txt"
    resources: pilotage_executable="other"
    shell: "touch {output}"
rule unknown:
    output: "unknown.txt"
    resources: pilotage_colour="red"
    shell: "touch {output}"
"""

WAITING = """
rule all:
    input: expand("ended-{n}", n=range(3))
rule wait:
    output: "ended-{n}"
    shell: "echo {wildcards.n} > started; until test -e go; do sleep 0.1; done; touch {output}"
"""

GROUPED = """
rule all:
    input: "c"
rule a:
    output: "a"
    group: "both"
    shell: "echo $PILOTAGE_JOB > {output}"
rule b:
    input: "a"
    output: "b"
    group: "both"
    shell: "cat {input} > {output}; echo $PILOTAGE_JOB >> {output}"
rule c:
    input: "b"
    output: "c"
    shell: "cat {input} > {output}"
"""


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--executor", "pilotage", "--jobs", "10", *words]


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and messages of Snakemake."""
    ended = subprocess.run(command(*words), cwd=folder, text=True, stderr=subprocess.PIPE)
    return ended.returncode, ended.stderr


def jobs_of(client: Client, folder: Path) -> dict[str, list[str]]:
    """The states of the jobs of a workflow, by their names."""
    states: dict[str, list[str]] = {}
    for job in client.jobs(Selection(job_group=label_of(f"snakemake {folder}"))):
        states.setdefault(job.name, []).append(job.state)
    return states


def test_the_tutorial_runs(folder: Path, client: Client) -> None:
    (folder / "Snakefile").write_text(TUTORIAL)
    (folder / "data").mkdir()
    for sample in "ABC":
        (folder / "data" / f"{sample}.txt").write_text(f"{sample}2\n{sample}1\n")
    code, messages = run(folder)
    assert code == 0, messages
    assert (folder / "calls.txt").read_text().split() == ["1A", "2A", "1B", "2B", "1C", "2C"]
    names = {f"{rule} sample={sample}" for rule in ("map", "sort") for sample in "ABC"} | {"call"}
    assert jobs_of(client, folder) == {name: ["Done"] for name in names}
    described = {
        job.name: client.job(job.id).description
        for job in client.jobs(Selection(job_group=label_of(f"snakemake {folder}")))
    }
    asked = described["map sample=A"]
    assert (asked["processors"], asked["memory"], asked["disk"], asked["wall_time"]) == (2, 301, 101, 300)
    assert described["call"]["user_priority"] == 7


def test_failures_are_told_and_tried_again(folder: Path, client: Client) -> None:
    (folder / "Snakefile").write_text(FAILING)
    code, messages = run(folder, "--keep-going", "--retries", "1")
    assert code == 1
    assert (folder / "tries").read_text().split() == ["100", "200"]
    assert jobs_of(client, folder) == {"grown": ["Failed", "Done"], "bad": ["Failed", "Failed"]}
    assert "is Failed: exit code 1 on " in messages
    assert ": no calibration for run 17." in messages
    logs = [path for path in (folder / ".snakemake/pilotage_logs").iterdir() if "run 17" in path.read_text()]
    assert len(logs) == 2
    assert all(str(log) in messages for log in logs)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("refused.txt", "the resource pilotage_executable is refused: the plug-in sets executable itself"),
        ("unknown.txt", "colour"),
    ],
)
def test_a_field_that_cannot_be_set_is_named(folder: Path, target: str, reason: str) -> None:
    (folder / "Snakefile").write_text(FAILING)
    code, messages = run(folder, target)
    assert code == 1
    assert reason in messages


def test_a_group_is_one_job(folder: Path) -> None:
    (folder / "Snakefile").write_text(GROUPED)
    code, messages = run(folder)
    assert code == 0, messages
    of_a, of_b = (folder / "c").read_text().split()
    assert of_a == of_b


class WaitingWorkflow:
    """Jobs that wait for a file, and the Snakemake that has submitted them. One of them runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "Snakefile").write_text(WAITING)
        os.mkfifo(folder / "started")
        self.log = (folder / "messages").open("w")
        self.process = Popen(command(), cwd=folder, stderr=self.log)
        self.started = (folder / "started").open()
        """It opens with the first job that runs."""

    def close(self) -> None:
        (self.folder / "go").touch()
        self.started.close()
        self.log.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def waiting(folder: Path) -> Iterator[WaitingWorkflow]:
    workflow = WaitingWorkflow(folder)
    yield workflow
    workflow.close()


def test_an_interrupted_snakemake_kills_its_jobs(waiting: WaitingWorkflow, client: Client) -> None:
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.process.wait() != 0
    assert jobs_of(client, waiting.folder) == {f"wait n={n}": ["Killed"] for n in range(3)}


def test_a_new_snakemake_goes_on_with_the_jobs_of_a_killed_one(
    waiting: WaitingWorkflow, client: Client
) -> None:
    waiting.process.kill()
    waiting.process.wait()
    assert run(waiting.folder, "--unlock")[0] == 0
    with Popen(command(), cwd=waiting.folder, text=True, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        found = 0
        while found < 3:
            line = process.stderr.readline()
            assert line, "Snakemake ended"
            found += " goes on as job " in line
        (waiting.folder / "go").touch()
        messages = process.stderr.read()
    assert process.returncode == 0, messages
    assert jobs_of(client, waiting.folder) == {f"wait n={n}": ["Done"] for n in range(3)}


def test_long_folders_have_short_labels() -> None:
    one, other = label_of("snakemake /" + "a" * 400), label_of("snakemake /b" + "a" * 400)
    assert len(one) == len(other) == LONGEST_LABEL
    assert one != other
