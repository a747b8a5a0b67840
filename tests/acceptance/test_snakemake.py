"""Snakemake, unchanged, with the plug-in of `plugins`: its suite for executors, and workflows as users start them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.client import Selection
from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.acceptance.test_slurm_commands import shared
from tests.deadlines import PATIENCE
from tests.debian_packages import lacks
from tests.installed_environment import environment_with_client
from tests.instance import Instance, running, until

ROOT = Path(__file__).parents[2]
PLUG_IN = ROOT / "plugins/snakemake-executor-plugin-pilotage"
PACKAGES = (
    "snakemake==9.27.1",
    "snakemake-storage-plugin-fs==1.1.3",
    "pytest>=8.3",
    "snakemake-executor-plugin-slurm==2.8.0",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE)]

TUTORIAL = """
SAMPLES = ["A", "B"]
rule all:
    input: "calls.txt"
rule map:
    input: "data/{sample}.txt"
    output: temp("mapped/{sample}.txt")
    threads: 2
    resources: mem_mb=105, disk_mb=105, runtime=20
    shell: "rev {input} > {output}"
rule sort:
    input: "mapped/{sample}.txt"
    output: protected("sorted/{sample}.txt")
    log: "logs/{sample}.log"
    shell: "sort {input} > {output} 2> {log}"
rule call:
    input: expand("sorted/{sample}.txt", sample=SAMPLES)
    output: "calls.txt"
    resources: pilotage_user_priority=7
    script: "call.py"
"""
CALL = """
with open(snakemake.output[0], "w") as calls:
    calls.writelines(open(name).read() for name in snakemake.input)
"""

FAILING = """
rule all:
    input: "grown.txt", "bad.txt", "refused.txt", "unknown.txt"
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
    shell: "until test -e go; do sleep 0.1; done; touch {output}"
"""

GROUPED = """
rule all:
    input: "b"
rule a:
    output: "a"
    group: "both"
    shell: "echo $PILOTAGE_JOB > {output}"
rule b:
    input: "a"
    output: "b"
    group: "both"
    shell: "cat {input} > {output}; echo $PILOTAGE_JOB >> {output}"
"""


def environment() -> Path:
    return environment_with_client("Snakemake", *PACKAGES)


class Workflow:
    """A folder with a workflow, and the jobs of its rules."""

    def __init__(self, instance: Instance, folder: Path, text: str) -> None:
        self.instance = instance
        self.folder = folder
        (folder / "Snakefile").write_text(text)
        self.python = str(environment() / "bin" / "python")
        self.environment = os.environ | {
            "HOME": str(instance.home),
            "PILOTAGE_HOME": str(instance.home),
            "PWD": str(folder),
            "PYTHONPATH": f"{ROOT / 'src'}:{PLUG_IN / 'src'}",
        }

    def words(self, *words: str) -> list[str]:
        return [self.python, "-m", "snakemake", "--executor", "pilotage", "--jobs", "10", *words]

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and messages of Snakemake."""
        ended = self.call(*self.words(*words))
        return ended.returncode, ended.stdout

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=5 * PATIENCE,
            check=False,
        )

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Snakemake in the background; it writes into the file `messages`."""
        with (self.folder / "messages").open("w") as messages:
            process = subprocess.Popen(
                self.words(), cwd=self.folder, env=self.environment, stdout=messages, stderr=messages
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    @property
    def messages(self) -> str:
        return (self.folder / "messages").read_text()

    def states(self) -> dict[str, list[str]]:
        """The states of the jobs in the order of submission, by their names."""
        states: dict[str, list[str]] = {}
        found = self.instance.client().jobs(Selection(job_group=f"snakemake {self.folder}"))
        for job in sorted(found, key=lambda job: job.id):
            states.setdefault(job.name, []).append(job.state)
        return states

    def description(self, name: str) -> dict[str, object]:
        client = self.instance.client()
        job = next(client.jobs(Selection(job_group=f"snakemake {self.folder}", name=name)))
        return client.job(job.id).description

    def logs(self) -> list[str]:
        return [path.read_text() for path in (self.folder / ".snakemake/pilotage_logs").iterdir()]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    environment()
    with running(tmp_path_factory.mktemp("snakemake"), idle=60) as one:
        shared(one)
        yield one


def tutorial(instance: Instance, folder: Path) -> Workflow:
    workflow = Workflow(instance, folder, TUTORIAL)
    (folder / "call.py").write_text(CALL)
    (folder / "data").mkdir()
    for sample in "AB":
        (folder / "data" / f"{sample}.txt").write_text(f"{sample}2\n{sample}1\n")
    return workflow


def test_the_suite_for_executors_passes(instance: Instance, tmp_path: Path) -> None:
    suite = Workflow(instance, tmp_path, "")
    passed = suite.call(suite.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUG_IN / "tests"))
    assert passed.returncode == 0, passed.stdout
    assert " passed" in passed.stdout


def test_the_tutorial_runs(instance: Instance, tmp_path: Path) -> None:
    workflow = tutorial(instance, tmp_path)
    code, messages = workflow.run()
    assert code == 0, messages
    assert (tmp_path / "calls.txt").read_text().split() == ["1A", "2A", "1B", "2B"]
    assert not list(tmp_path.glob("mapped/*"))
    names = {f"{rule} sample={sample}" for rule in ("map", "sort") for sample in "AB"} | {"call"}
    assert workflow.states() == {name: ["Done"] for name in names}
    asked = workflow.description("map sample=A")
    assert [asked[field] for field in ("processors", "memory", "disk", "wall_time")] == [2, 301, 101, 1200]
    assert asked["folder"] == str(tmp_path)
    assert workflow.description("call")["user_priority"] == 7
    assert workflow.logs() == []


def test_failures_are_told_and_tried_again(instance: Instance, tmp_path: Path) -> None:
    workflow = Workflow(instance, tmp_path, FAILING)
    code, messages = workflow.run("--keep-going", "--retries", "1")
    assert code == 1
    assert (tmp_path / "tries").read_text().split() == ["100", "200"]
    assert workflow.states() == {"grown": ["Failed", "Done"], "bad": ["Failed", "Failed"]}
    assert "is Failed: exit code 1 on " in messages
    assert ": no calibration for run 17. " in messages
    assert len([log for log in workflow.logs() if "run 17" in log]) == 2
    assert "the resource pilotage_executable is refused: the plug-in sets executable itself. " in messages
    assert "colour" in messages


def test_a_group_is_one_job(instance: Instance, tmp_path: Path) -> None:
    workflow = Workflow(instance, tmp_path, GROUPED)
    code, messages = workflow.run()
    assert code == 0, messages
    of_a, of_b = (tmp_path / "b").read_text().split()
    assert of_a == of_b


def test_an_interrupted_snakemake_kills_its_jobs(instance: Instance, tmp_path: Path) -> None:
    workflow = Workflow(instance, tmp_path, WAITING)
    with workflow.started() as snakemake:
        until(
            lambda: "Running" in str(workflow.states()) and len(workflow.states()) == 3, what="a running job"
        )
        snakemake.send_signal(signal.SIGINT)
        assert snakemake.wait(PATIENCE) != 0
    until(lambda: workflow.states() == {f"wait n={n}": ["Killed"] for n in range(3)}, what="the kills")


def test_a_new_snakemake_goes_on_with_the_jobs_of_a_killed_one(tmp_path: Path) -> None:
    (folder := tmp_path / "work").mkdir()
    environment()
    with running(tmp_path, idle=60) as instance:
        shared(instance)
        workflow = Workflow(instance, folder, WAITING)
        with workflow.started():
            until(lambda: "Running" in str(workflow.states()) and len(workflow.states()) == 3)
        assert workflow.run("--unlock")[0] == 0
        with workflow.started() as snakemake:
            until(lambda: workflow.messages.count(" goes on as job ") == 3, what="the jobs that were found")
            instance.kill_server()
            until(lambda: "running jobs go on, and Snakemake waits" in workflow.messages, what="the outage")
            (folder / "go").touch()
            instance.start()
            assert snakemake.wait(4 * PATIENCE) == 0, workflow.messages
        assert workflow.states() == {f"wait n={n}": ["Done"] for n in range(3)}


def test_a_workflow_runs_without_a_shared_folder(instance: Instance, tmp_path: Path) -> None:
    if lacks("rsync"):
        pytest.skip("rsync is not installed: the storage plug-in for folders is not tested")
    (folder := tmp_path / "work").mkdir()
    workflow = tutorial(instance, folder)
    (storage := tmp_path / "storage").mkdir()
    shutil.move(folder / "data", storage)
    code, messages = workflow.run(
        *("--shared-fs-usage", "none", "--default-storage-provider", "fs"),
        *("--default-storage-prefix", str(storage)),
        *("--pilotage-export", f"PATH={environment() / 'bin'}:{os.environ['PATH']}"),
    )
    assert code == 0, messages
    assert (storage / "calls.txt").read_text().split() == ["1A", "2A", "1B", "2B"]
    assert "folder" not in workflow.description("call")


def test_the_tutorial_runs_on_slurm(tmp_path: Path) -> None:
    environment()
    (folder := tmp_path / "work").mkdir()
    with (
        slurm.cluster(nodes=2, processors=8) as cluster,
        instance_on(
            cluster, tmp_path / "server", shared_folders='["/"]', owners='"home"', idle="30"
        ) as instance,
    ):
        workflow = tutorial(instance, folder)
        code, messages = workflow.run()
        assert code == 0, messages
        assert (folder / "calls.txt").read_text().split() == ["1A", "2A", "1B", "2B"]
        assert {pilot.ce for pilot in instance.client().pilots()} == {"slurm"}
