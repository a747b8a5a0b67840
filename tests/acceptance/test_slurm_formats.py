"""What Slurm's commands print, in the forms that programs and people's settings ask for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_slurm_commands import Shell, shared
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("formats"), idle=60) as one:
        shared(one)
        yield one


@pytest.fixture
def shell(instance: Instance, tmp_path: Path) -> Shell:
    return Shell(instance, tmp_path)


def test_formats_of_variables_hold_until_the_command_line_names_one(shell: Shell) -> None:
    job = shell.submit("-H", "-J", "held", "--wrap", "true")
    by_variable = shell.run("squeue", "-h", "-j", job, SQUEUE_FORMAT="%i|%j")
    assert by_variable.stdout == f"{job}|held\n"
    assert shell.run("squeue", "-h", "-j", job, "-o", "%t", SQUEUE_FORMAT="%i").stdout == "PD\n"
    assert shell.run("squeue", "-h", "-j", job, "-o", "%t", SQUEUE_FORMAT2="jobid").stdout == "PD\n"
    assert shell.run("sacct", "-n", "-P", "-j", job, SACCT_FORMAT="jobid,state").stdout == f"{job}|PENDING\n"
    brief = shell.run("sacct", "-n", "-P", "-j", job, "-b", SACCT_FORMAT="jobname")
    assert brief.stdout == f"{job}|PENDING|0:0\n"
    wrong = shell.run("squeue", "-j", job, SQUEUE_FORMAT="%?%E%!", SQUEUE_STATES="nosuch")
    assert (wrong.returncode, "nosuch is not a state" in wrong.stderr) == (1, True)


def test_a_task_and_its_array_in_scontrol(shell: Shell) -> None:
    array = shell.submit("-H", "-a", "2-6:4%2", "-o", "%A-%a.txt", "--wrap", "true")
    whole = shell.run("scontrol", "show", "job", array).stdout
    assert f"JobId={array} ArrayJobId={array} ArrayTaskId=2,6%2 ArrayTaskThrottle=2 JobName=wrap\n" in whole
    assert f"   StdOut={shell.folder}/{array}-4294967294.txt\n" in whole
    task = shell.run("scontrol", "show", "job", f"{array}_6").stdout
    assert "ArrayTaskId=6 ArrayTaskThrottle=2 JobName=wrap\n" in task
    assert f"   StdOut={shell.folder}/{array}-6.txt\n" in task
    assert shell.run("squeue", "-h", "-j", f"{array}_6", "-o", "%i %K").stdout == f"{array}_6 6\n"


def test_conditions_are_shown_until_they_are_fulfilled(shell: Shell) -> None:
    array = shell.submit("-H", "-a", "0-1", "--wrap", "true")
    first = shell.submit("-H", "-J", "one", "--wrap", "true")
    child = shell.submit("-d", f"afterok:{array},afterany:{first}", "--wrap", "true")
    namesake = shell.submit("-J", "one", "-d", "singleton", "--wrap", "true")

    def shown(job: str) -> str:
        return shell.run("squeue", "-h", "-j", job, "-o", "%r %E").stdout

    assert shown(child) == f"Dependency afterany:{first}(unfulfilled),afterok:{array}_*(unfulfilled)\n"
    assert shown(namesake) == f"Dependency afterany:{first}(unfulfilled)\n"
    shell.instance.cli("release", first)
    shell.instance.cli("wait", f"{first},{namesake}")
    assert shown(child) == f"Dependency afterok:{array}_*(unfulfilled)\n"
    assert "EligibleTime=Unknown" in shell.run("scontrol", "show", "job", child).stdout


def test_documents_have_the_names_of_slurm(shell: Shell) -> None:
    job = shell.submit("-W", "--mem=100M", "-o", "out-%j.txt", "--wrap", "exit 0")
    failed = shell.run("sbatch", "-W", "--parsable", "--wrap", "exit 3").stdout.strip()
    [queued] = json.loads(shell.run("squeue", "--json", "-t", "all", "-j", job).stdout)["jobs"]
    assert queued["standard_output"] == f"{shell.folder}/out-{job}.txt"
    assert queued["tres_req_str"] == "cpu=1,mem=100M,node=1,billing=1"
    assert (queued["job_state"], queued["group_id"]) == ("COMPLETED", os.getgid())
    records = json.loads(shell.run("sacct", "--json", "-j", f"{job},{failed}").stdout)["jobs"]
    assert [record["job_id"] for record in records] == [int(job), int(failed)]
    assert [record["state"]["current"] for record in records] == ["COMPLETED", "FAILED"]
    assert records[1]["exit_code"] == {"status": "ERROR", "return_code": 3}
    assert records[0]["required"] == {"CPUs": 1, "memory": 100}
    assert records[0]["steps"][0]["step"]["name"] == "batch"
    assert records[0]["time"]["end"] >= records[0]["time"]["start"] >= records[0]["time"]["submission"] > 0


def test_the_script_of_a_job(shell: Shell) -> None:
    text = "#!/bin/sh\n# a comment: %s\ntrue\n"
    job = shell.submit("-H", shell.script("job.sh", text), "one", "two")
    assert shell.run("scontrol", "write", "batch_script", job, "-").stdout == text
    written = shell.run("scontrol", "write", "batch_script", job)
    assert written.stdout == f"batch script for job {job} written to slurm-{job}.sh\n"
    assert shell.text(f"slurm-{job}.sh") == text
    command = shell.run("squeue", "-h", "-j", job, "-o", "%o").stdout
    assert command == f"{shell.folder}/job.sh one two\n"
    other = json.loads(shell.instance.cli("submit", "--hold", "--json", "--", "true").stdout)
    number = str(other["submissions"][0]["first"])
    for words in (("batch_script", number), ("batch_script", "99999999"), ("nosuch",), ()):
        assert shell.run("scontrol", "write", *words).returncode == 1


def test_a_program_in_path_is_a_script(shell: Shell) -> None:
    (shell.folder / "bin").mkdir()
    shell.script("bin/program", '#!/bin/sh\necho "$1 $USER"\n')
    (shell.folder / "bin/program").chmod(0o755)
    path = f"{shell.folder}/bin:{shell.environment['PATH']}"
    done = shell.run("sbatch", "-W", "--export=NONE", "-o", "out.txt", "program", "hello", PATH=path)
    assert done.returncode == 0, done
    assert shell.text("out.txt").split()[0] == "hello"
    assert len(shell.text("out.txt").split()) == 2
