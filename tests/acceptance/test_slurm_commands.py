"""Slurm's commands, called as their users call them: by name, from PATH, with their own scripts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


def shared(instance: Instance) -> None:
    """Let the local CE run jobs in place in all folders."""
    instance.policy = instance.policy.replace("[ces.local]\n", '[ces.local]\nshared_folders = ["/"]\n')
    instance.apply()


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("slurm"), idle=60) as one:
        shared(one)
        yield one


class Shell:
    """The shell of somebody with the commands in PATH, in a folder of their own."""

    def __init__(self, instance: Instance, folder: Path) -> None:
        self.instance = instance
        self.folder = folder
        self.commands = instance.home.parent / "slurm commands"
        made = instance.cli("slurm-commands", str(self.commands), cwd=folder)
        assert made.returncode == 0, made.stderr
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        self.environment = kept | {
            "PATH": f"{self.commands}:{os.environ['PATH']}",
            "PILOTAGE_HOME": str(instance.home),
            "PWD": str(folder),
        }

    def run(self, *words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment | variables,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def submit(self, *words: str, given: str = "") -> str:
        done = self.run("sbatch", "--parsable", *words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def shell(instance: Instance, tmp_path: Path) -> Shell:
    return Shell(instance, tmp_path)


def test_a_script_from_submission_to_its_record(shell: Shell) -> None:
    script = shell.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH --job-name=first --time=5\n#SBATCH -o out-%j-%x.txt -e err.txt\n\necho hello $1 $HERE\n"
        'echo "$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_NTASKS" >&2\npwd\nexit 3\n#SBATCH --time=nonsense\n',
    )
    done = shell.run("sbatch", script, "two words", HERE="100%s")
    assert (done.returncode, done.stderr) == (0, ""), done
    number = done.stdout.removeprefix("Submitted batch job ").strip()
    assert done.stdout == f"Submitted batch job {number}\n"
    shell.instance.cli("wait", number)
    waited = shell.run("sbatch", "--wait", "--dependency", f"afterany:{number}", "--wrap", "exit 4")
    assert waited.returncode == 4, waited
    assert shell.text(f"out-{number}-first.txt") == f"hello two words 100%s\n{shell.folder}\n"
    assert shell.text("err.txt") == f"{number} first \n"
    rows = shell.run("sacct", "-j", number, "-n", "-P", "-o", "JobID,JobName,State,ExitCode,Timelimit").stdout
    assert rows.splitlines() == [f"{number}|first|FAILED|3:0|00:05:00", f"{number}.batch|batch|FAILED|3:0|"]
    for step, text in (("batch", f"{number}.batch\n"), ("0", "")):
        assert shell.run("sacct", "-j", f"{number}.{step}", "-n", "-P", "-o", "JobID").stdout == text
    assert shell.run("squeue", "-h", "-j", number).stdout == ""
    assert shell.run("squeue", "-h", "-j", number, "-t", "all", "-o", "%i %t %r").stdout == (
        f"{number} F NonZeroExitCode\n"
    )


def test_an_array_by_its_number_and_the_numbers_of_its_tasks(shell: Shell) -> None:
    script = shell.script(
        "array.sh",
        "#!/bin/sh\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX"
        " $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_STEP $SLURM_JOB_ID\nexit $((SLURM_ARRAY_TASK_ID % 2))\n",
    )
    array = shell.submit("-H", "-a", "2-10:4%2", script)
    assert (
        shell.run("squeue", "-h", "-j", array, "-o", "%i %t %r").stdout
        == f"{array}_[2,6,10%2] PD JobHeldUser\n"
    )
    assert shell.run("squeue", "-h", "-r", "-j", f"{array}_6", "-o", "%i %A").stdout.split() == [
        f"{array}_6",
        str(int(array) + 1),
    ]
    assert shell.run("scancel", f"{array}_6").returncode == 0
    after = shell.submit("-d", f"afterok:{array}_2", "--wrap", "echo next")
    assert shell.run("squeue", "-h", "-j", after, "-o", "%t %r").stdout == "PD Dependency\n"
    never = shell.submit("-d", f"afterok:{array}", "--wrap", "true")
    assert shell.run("scontrol", "release", array).returncode == 0
    shell.instance.cli("wait", f"{array},{int(array) + 2},{after},{never}")
    assert shell.text(f"slurm-{array}_10.out") == f"{array} 10 2 10 3 4 {int(array) + 2}\n"
    rows = shell.run("sacct", "-X", "-n", "-P", "-j", f"{array},{after},{never}", "-o", "JobID,State").stdout
    states = [tuple(line.split()[0].split("|")) for line in rows.splitlines()]
    assert states == [
        (f"{array}_2", "COMPLETED"),
        (f"{array}_6", "CANCELLED"),
        (f"{array}_10", "COMPLETED"),
        (after, "COMPLETED"),
        (never, "CANCELLED"),
    ]


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (("--nosuch",), "#!/bin/sh\n", "unrecognized option '--nosuch'"),
        (("--reservation=x",), "#!/bin/sh\n", "--reservation is refused"),
        (("-a", "0-10000000"), "#!/bin/sh\n", "at most 100,000"),
        (("-a", "0-5%x"), "#!/bin/sh\n", "not a number of jobs above 0"),
        (("-d", "afterok:4711"), "#!/bin/sh\n", "there is no job 4711"),
        (("-d", "after:1"), "#!/bin/sh\n", "after is refused"),
        (("-d", "afterok:1?afterok:2"), "#!/bin/sh\n", "`?` is refused"),
        (("-p", "nowhere"), "#!/bin/sh\n", "invalid partition specified: nowhere"),
        ((), "echo\n", "does not begin with #!"),
        ((), "", "is empty"),
        ((), "#!/bin/sh\r\ntrue\r\n", "DOS line ends"),
        ((), "#!/bin/sh\n#SBATCH --nosuch=1\n", "line 2: unrecognized option '--nosuch'"),
        ((), "#!/bin/sh\n#SBATCH --job-name = x\n", "line 2: invalid directive found in batch script: x"),
        (("-N", "2"), "#!/bin/sh\n", "a job here runs on one node"),
    ],
)
def test_what_sbatch_refuses(shell: Shell, words: tuple[str, ...], text: str, said: str) -> None:
    done = shell.run("sbatch", *words, shell.script("job.sh", text))
    assert said in done.stderr, done
    assert done.stderr.startswith("sbatch: error: ")
    assert (done.returncode, done.stdout) == (1, "")


def test_commands_about_unknown_jobs(shell: Shell) -> None:
    for words in (("squeue", "-j", "4711"), ("scancel", "4711"), ("scontrol", "show", "job", "4711")):
        done = shell.run(*words)
        assert (done.returncode, "4711" in done.stderr) == (1, True), done
    held = shell.submit("-H", "--wrap", "true")
    for words in (
        ("scancel", f"{held}.0"),
        ("scontrol", "release", f"{held}.0"),
        ("squeue", "-j", f"{held}.0"),
    ):
        done = shell.run(*words)
        assert (done.returncode, f"{held}.0 is a step" in done.stderr) == (1, True), done
    assert shell.run("squeue", "-h", "-j", held, "-o", "%t").stdout == "PD\n"
    assert shell.run("scancel", held).returncode == 0
    assert shell.run("sbatch", "absent.sh").returncode == 1
    assert shell.run("sacct", "-n", "-j", "4711").returncode == 0


def test_srun_runs_a_command_as_a_job_and_in_a_job(shell: Shell) -> None:
    alone = shell.run("srun", "sh", "-c", "echo out; echo err >&2; exit 5")
    host = socket.gethostname().partition(".")[0]
    said = f"err\nsrun: error: {host}: task 0: Exited with exit code 5\n"
    assert (alone.stdout, alone.stderr, alone.returncode) == ("out\n", said, 5)
    job = shell.submit(
        "-n", "2", "-W", "--wrap", "srun -l -o tasks-%t.txt sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'"
    )
    assert [shell.text(f"tasks-{task}.txt") for task in (0, 1)] == ["0 of 2\n", "1 of 2\n"], job


def test_the_pool_as_sinfo_and_scontrol_show_it(shell: Shell) -> None:
    job = shell.submit("-c", "2", "--mem=1G", "-W", "--comment=hello", "--wrap", "true")
    shown = shell.run("scontrol", "-o", "show", "job", job).stdout
    for pair in (
        f"JobId={job}",
        "JobState=COMPLETED",
        "ExitCode=0:0",
        "NumCPUs=2",
        "MinMemoryNode=1G",
        "JobName=wrap",
    ):
        assert pair in shown.split()
    assert f"StdOut={shell.folder}/slurm-{job}.out" in shown.split()
    assert set(shell.run("sinfo", "-h", "-o", "%R").stdout.split()) == {"all", "local", "here"}
    assert "UP" in shell.run("scontrol", "ping").stdout
    assert "MinJobAge" in shell.run("scontrol", "show", "config").stdout


@pytest.mark.parametrize(
    "end", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]
)
def test_the_job_of_srun_ends_with_srun_in_each_way(shell: Shell, end: signal.Signals) -> None:
    # A program in the background ignores some of them, and would hand that on.
    words = ("env", "--default-signal", "srun", "-J", end.name, "sh", "-c", "touch started; exec sleep 1000")
    with subprocess.Popen(
        words, cwd=shell.folder, env=shell.environment, stderr=subprocess.DEVNULL
    ) as caller:
        until((shell.folder / "started").exists, what="the start of the step")
        caller.send_signal(end)
    until(lambda: not shell.run("squeue", "-h", "-n", end.name).stdout, what="the end of the job")
    shown = shell.run("sacct", "-X", "-n", "-P", "--name", end.name, "-o", "State").stdout
    assert shown.startswith("CANCELLED"), shown
    assert caller.returncode in (-end, 128 + end)
