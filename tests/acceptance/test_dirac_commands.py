"""The commands of DIRAC, called as their users call them: by name, from PATH, with their own JDL."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running

JDL = """
[
  Executable = "/bin/sh";
  Arguments = "-c 'echo hello %s; echo data > out.dat; exit %s'";
  StdOutput = "StdOut";
  StdError = "StdErr";
  OutputSandbox = {"StdOut", "StdErr", "out.dat"};
  JobGroup = "dirac-users";
  Parameters = {"0", "3"};
]
"""
SLEEPER = 'Executable = "/bin/sleep"; Arguments = "600";'


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("dirac")) as one:
        yield one


class Shell:
    """The shell of somebody with the commands in PATH, in a folder of their own."""

    def __init__(self, instance: Instance, folder: Path) -> None:
        self.folder = folder
        commands = folder / "dirac commands"
        made = instance.cli("dirac-commands", str(commands), cwd=folder)
        assert made.returncode == 0, made.stderr
        self.commands = commands
        self._environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PILOTAGE_HOME": str(instance.home),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture
def shell(instance: Instance, tmp_path: Path) -> Shell:
    return Shell(instance, tmp_path)


def test_a_day_of_a_dirac_user(instance: Instance, shell: Shell) -> None:
    (shell.folder / "my.jdl").write_text(JDL)
    submitted = shell.run("dirac-wms-job-submit", "-f", "ids.txt", "my.jdl")
    first, second = map(int, (shell.folder / "ids.txt").read_text().split())
    assert submitted.stdout == f"JobID = [{first}, {second}]\n", submitted.stderr
    instance.cli("wait", f"{first}-{second}")
    status = shell.run("dirac-wms-job-status", f"{first},{second}").stdout.splitlines()
    assert status[0] == f"JobID={first} Status=Done; MinorStatus=Execution Complete; Site=here;"
    assert status[1].startswith(f"JobID={second} Status=Failed; MinorStatus=")
    assert shell.run("dirac-wms-job-status", "-g", "dirac-users").stdout.splitlines() == status
    assert shell.run("dirac-wms-job-peek", str(first)).stdout == "hello 0\n"
    got = shell.run("dirac-wms-job-get-output", "-D", "results", "ids.txt")
    assert got.stdout.splitlines() == [
        f"Job output sandbox retrieved in results/{job}/" for job in (first, second)
    ]
    names = sorted(path.name for path in (shell.folder / "results" / str(first)).iterdir())
    assert set(names) >= {"StdOut", "out.dat"}
    again = shell.run("dirac-wms-job-get-output", "-D", "results", "-f", "ids.txt")
    assert (again.stdout, again.returncode) == ("", 0)
    rescheduled = shell.run("dirac-wms-job-reschedule", str(first), str(second))
    assert rescheduled.stdout.splitlines()[0] == f"Rescheduled job {second}"
    assert rescheduled.stdout.splitlines()[1].startswith(f"ERROR {first}: ")
    assert rescheduled.returncode == 2
    instance.cli("wait", str(second))
    deleted = shell.run("dirac-wms-job-delete", "-g", "dirac-users")
    assert deleted.stdout == f"Deleted jobs {first},{second}\n"


def test_several_descriptions_of_which_one_is_wrong(shell: Shell) -> None:
    (shell.folder / "sleep.jdl").write_text(SLEEPER)
    (shell.folder / "wrong.jdl").write_text('Executable = "a"; InputData = {"LFN:/x"};')
    submitted = shell.run("dirac-wms-job-submit", "wrong.jdl", "sleep.jdl", SLEEPER, "absent.jdl")
    lines = submitted.stdout.splitlines()
    assert [line.partition(" = ")[0] for line in lines[:2]] == ["JobID", "JobID"], submitted
    assert "ERROR wrong.jdl" in lines[2]
    assert "InputData" in lines[2]
    assert "ERROR absent.jdl" in lines[3]
    assert submitted.returncode == 2
    jobs = [line.partition(" = ")[2] for line in lines[:2]]
    killed = shell.run("dirac-wms-job-kill", *jobs)
    assert (killed.stdout, killed.returncode) == (f"Killed jobs {','.join(jobs)}\n", 0)
    twice = shell.run("dirac-wms-job-kill", jobs[0])
    assert twice.stdout.startswith(f"ERROR {jobs[0]}: ")
    assert twice.returncode == 2
    waiting = shell.run("dirac-wms-job-get-output", jobs[0])
    assert waiting.stdout == f"ERROR {jobs[0]}: the job has no output\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dirac-wms-job-status", "4711"), "there is no job 4711"),
        (("dirac-wms-job-status",), "no job is named"),
        (("dirac-wms-job-status", "one"), "'one' is not a job id"),
        (("dirac-wms-job-status", "-f", "absent"), "absent"),
        (("dirac-wms-job-kill",), "Missing argument 'JobID...'"),
        (("dirac-wms-job-peek", "4711", "-o", "/x=y"), "No such option"),
        (("dirac-wms-job-get-output", "4711"), "there is no job 4711"),
        (("dirac-wms-job-delete", "-g", ""), "--JobGroup is empty"),
        (("dirac-wms-job-submit", "-r", "repo.cfg", "my.jdl"), "No such option"),
    ],
)
def test_wrong_use_is_told(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell.run(*words)
    assert done.returncode != 0
    assert said.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_help_names_the_command_as_people_type_it(shell: Shell) -> None:
    for path in sorted(shell.commands.iterdir()):
        helped = shell.run(path.name, "--help")
        assert helped.stdout.startswith(f"Usage: {path.name} "), helped
        assert helped.returncode == 0


def test_a_folder_is_written_again_but_no_file_of_others(instance: Instance, shell: Shell) -> None:
    assert instance.cli("dirac-commands", str(shell.commands)).returncode == 0
    theirs = shell.commands / "dirac-wms-job-kill"
    theirs.write_text("#!/usr/bin/env python\n")
    refused = instance.cli("dirac-commands", str(shell.commands))
    assert refused.returncode == 5
    assert f"{theirs} is a file of another program" in refused.stderr
    assert theirs.read_text() == "#!/usr/bin/env python\n"
    nowhere = instance.cli("dirac-commands", "/proc/x/y")
    assert nowhere.returncode == 2
    assert "cannot be written" in nowhere.stderr
