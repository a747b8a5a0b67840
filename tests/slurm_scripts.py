"""A folder of scripts for Slurm, and a driver that runs all of them with the commands in PATH.

The driver records what a user sees, with numbers of jobs and folders replaced by words. So the records of two systems
can be compared line by line.
"""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pilotage.main
from tests import forked
from tests.deadlines import PATIENCE
from tests.instance import until


@dataclass(frozen=True)
class Script:
    """One submission in a folder of its own. `{name}` in a word is the number of another one."""

    name: str
    text: str | None = "#!/bin/sh\ntrue\n"
    """None: there is no script, and the words hold --wrap."""
    words: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    given: str = ""
    """Standard input of sbatch. The script is not named if it has some."""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Further files and folders that exist before."""


SHOW: Final = '#!/bin/sh\necho "id=$SLURM_JOB_ID"\n'
SCRIPTS: Final = (
    Script("plain", SHOW + 'echo hello $1 "$2"\necho oops >&2\npwd\n', arguments=("a", "two words  %s")),
    Script(
        "lines",
        "#!/bin/bash\n#SBATCH --job-name=named --output=out-%j-%x.txt\n#SBATCH -e err-%6j-%u.txt # a comment\n\n"
        "# a word\necho $SLURM_JOB_NAME\necho bad >&2\n#SBATCH --job-name=late\nexit 3\n",
    ),
    Script("line-over", "#!/bin/sh\n#SBATCH -J line -o line.txt\necho $SLURM_JOB_NAME\n", ("-J", "command")),
    Script(
        "variable-over",
        "#!/bin/sh\n#SBATCH -J line\necho $SLURM_JOB_NAME\n",
        variables={"SBATCH_JOB_NAME": "variable"},
    ),
    Script(
        "array",
        "#!/bin/sh\n#SBATCH --array=1-7:3%2\n#SBATCH -o %x-%a.txt\n"
        "echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_COUNT"
        " $SLURM_ARRAY_TASK_STEP\n[ $SLURM_JOB_ID -ge $SLURM_ARRAY_JOB_ID ] && echo order\n"
        'echo "id=$SLURM_ARRAY_JOB_ID"\nexit $((SLURM_ARRAY_TASK_ID % 2))\n',
    ),
    Script("array-names", "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID\n", ("-a", "2,5")),
    Script("folder", "#!/bin/sh\npwd\n", ("--chdir=sub", "-o", "here.txt"), files=("sub/",)),
    Script("append", "#!/bin/sh\necho new\n", ("--open-mode=append", "-o", "old.txt"), files=("old.txt",)),
    Script("truncate", "#!/bin/sh\necho new\n", ("-o", "old.txt"), files=("old.txt",)),
    Script("no-folder", "#!/bin/sh\necho lost\n", ("-o", "absent/out.txt")),
    Script("input", "#!/bin/sh\ncat\n", ("--input=old.txt",), files=("old.txt",)),
    Script("no-input", "#!/bin/sh\ncat\necho end\n"),
    Script("absent-input", "#!/bin/sh\ncat\necho end\n", ("--input=absent.txt",)),
    Script("from-stdin", None, ("-o", "out.txt"), given="#!/bin/sh\necho from input: $SLURM_JOB_NAME\n"),
    Script("wrap", None, ("--wrap", "echo $SLURM_JOB_NAME 100%; exit 4")),
    Script("code", "#!/bin/sh\nexit 200\n"),
    Script("terminated", "#!/bin/sh\nkill -TERM $$\n"),
    Script("killed", "#!/bin/bash\nkill -KILL $$\n"),
    Script("child-killed", "#!/bin/bash\nsh -c 'kill -KILL $$'\n"),
    Script("not-found", "#!/bin/sh\nno-such-command\n"),
    Script("no-interpreter", "#!/no/such/interpreter\necho never\n"),
    Script(
        "python",
        "#!/usr/bin/env python3\nimport os\nprint(os.environ['SLURM_JOB_NAME'])\n",
        ("-o", "out.txt"),
    ),
    Script(
        "export-names",
        "#!/bin/sh\necho $COLOUR-$SIZE-$OTHER\n",
        ("--export=COLOUR,SIZE=big",),
        variables={"COLOUR": "blue", "OTHER": "x"},
    ),
    Script(
        "export-all",
        "#!/bin/sh\necho $COLOUR-$SIZE\n",
        ("--export=ALL,SIZE=big",),
        variables={"COLOUR": "b l"},
    ),
    Script("export-none", "#!/bin/sh\necho $COLOUR\n", ("--export=NONE",), variables={"COLOUR": "blue"}),
    Script(
        "variables",
        "#!/bin/sh\nenv | grep ^SLURM | sort\n",
        ("-o", "variables.txt", "-n", "2", "-c", "1", "--mem=600M"),
    ),
    Script(
        "task-variables", "#!/bin/sh\nenv | grep ^SLURM_ARRAY | sort\n", ("-o", "variables.txt", "-a", "3")
    ),
    Script("many-tasks", "#!/bin/sh\nsrun -l echo $SLURM_NTASKS | sort\n", ("-n", "2", "-o", "out.txt")),
    Script("step-code", "#!/bin/sh\nsrun sh -c 'exit 7'\n"),
    Script("after-ok", SHOW, ("-d", "afterok:{plain}", "-o", "out.txt")),
    Script("after-fail", SHOW, ("-d", "afternotok:{code}", "-o", "out.txt")),
    Script("after-any", SHOW, ("-d", "afterany:{plain}:{code}", "-o", "out.txt")),
    Script("after-array", SHOW, ("-d", "afterany:{array}", "-o", "out.txt")),
    Script("partition", "#!/bin/sh\necho $SLURM_JOB_PARTITION\n", ("-p", "long", "-o", "out.txt")),
    Script("partitions", "#!/bin/sh\necho $SLURM_JOB_PARTITION\n", ("-p", "long,short", "-o", "out.txt")),
    Script("partition-line", "#!/bin/sh\n#SBATCH --partition=long\necho $SLURM_JOB_PARTITION\n"),
    Script("seconds", SHOW, ("-t", "5:30")),
    Script("no-output", "#!/bin/sh\necho out\necho err >&2\n", ("-o", "none", "-e", "err.txt")),
    Script("backslash", SHOW, ("-o", "a\\%j.txt")),
    Script("user", "#!/bin/sh\necho $USER $LOGNAME\n", ("--export=NONE",)),
    Script("namesake", "#!/bin/sh\nsleep 1\ntouch ended\n", ("-J", "one")),
    Script(
        "singleton",
        "#!/bin/sh\n[ -e ../namesake/ended ] && echo after\n",
        ("-J", "one", "-d", "singleton", "-o", "out.txt"),
    ),
    Script("never-ok", SHOW, ("--kill-on-invalid-dep=yes", "-d", "afterok:{code}")),
    Script("never-fail", SHOW, ("--kill-on-invalid-dep=yes", "-d", "afternotok:{plain}")),
    Script(
        "held",
        "#!/bin/sh\n",
        ("-H", "-p", "short,long", "-c", "2", "--mem=100M", "-t", "1:30:00", "--comment=a b"),
    ),
    Script("held-array", SHOW, ("-H", "-a", "0-30:5%3", "-J", "steps", "--mem=777M")),
    Script("held-short-array", SHOW, ("-H", "-a", "0-4:2", "--mem=777M"), arguments=("one", "two")),
    Script(
        "waits",
        SHOW,
        ("--kill-on-invalid-dep=yes", "-d", "afterany:{held-array},afterok:{held}", "--mem=777M"),
    ),
    Script("running", "#!/bin/sh\ntouch started\nexec sleep 1000\n"),
    Script(
        "running-array", "#!/bin/sh\ntouch started-$SLURM_ARRAY_TASK_ID\nexec sleep 1000\n", ("-a", "0-1")
    ),
)
REFUSED: Final = (
    Script("unknown-option", words=("--nosuch",)),
    Script("no-value", words=("--output",), given=" "),
    Script("bad-array", words=("-a", "3-x")),
    Script("bad-time", words=("-t", "soon")),
    Script("bad-memory", words=("--mem=much",)),
    Script("bad-partition", words=("-p", "nowhere")),
    Script("one-bad-partition", words=("-p", "short,nowhere")),
    Script("bad-dependency", words=("-d", "afterok:99999999")),
    Script("bad-word", words=("-d", "whenever:1")),
    Script("no-chdir", "#!/bin/sh\npwd\n", ("--chdir=/nowhere",)),
    Script("no-mark", "echo\n"),
    Script("empty", ""),
    Script("dos", "#!/bin/sh\r\ntrue\r\n"),
    Script("line-unknown", "#!/bin/sh\n#SBATCH --nosuch=1\n"),
    Script("line-stray", "#!/bin/sh\n#SBATCH --job-name = x\n"),
    Script("two-scripts", words=("--wrap", "true")),
    Script("test-only", words=("--test-only",)),
)
VARYING: Final = (
    (r"\b(id|SLURM_(?:ARRAY_)?JOB_?ID|SLURM_TASK_PID)=\d+", r"\1=<id>"),
    (r"/\S*/slurm_script", "<script>"),
    (r"/\S+/slurm.conf", "<settings>"),
    (r"test:127\S+", "<cluster>"),
    (r" +\d+ Killed", " <id> Killed"),  # bash pads short numbers
    (r"JOB \d+ ON", "JOB <id> ON"),
    (r"CANCELLED AT \S+", "CANCELLED AT <time>"),
    (rf"\b(?:n1|{re.escape(socket.gethostname().partition('.')[0])})\b", "<host>"),
)
"""What differs from run to run, and the words for it."""
_OF_SITE: Final = frozenset(
    {"UserId", "GroupId", "Priority", "Account", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval"}
    | {"Scheduler", "AllocNode:Sid", "JobId", "ArrayJobId", "KillOInInvalidDependent"}
)
"""Facts of scontrol that differ from cluster to cluster, or from run to run."""
_WAITING: Final = ("held-array", "held-short-array", "waits", "held")
SACCT: Final = "JobName,Partition,State,ExitCode,Timelimit,ReqCPUS,NNodes,User,WorkDir"
HELD: Final = "%j|%P|%u|%t|%T|%r|%R|%M|%l|%D|%C|%m|%E|%k|%o|%Z|%N|%B|%S|%e|%K|%c"


class Driver:
    """Runs the scripts with the commands of one system. `record` has what was seen, by what it is about."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, of_pilotage: bool) -> None:
        """`of_pilotage`: the commands are forks of this process, which start much faster than by PATH."""
        self.folder = folder
        self.environment = dict(environment) | {"SBATCH_TIMELIMIT": "30"}
        self.of_pilotage = of_pilotage
        self.numbers: dict[str, str] = {}
        self.record: dict[str, str] = {}

    def run(
        self, *words: str, folder: str = "", given: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        place = self.folder / folder
        environment = {**self.environment, "PWD": str(place), **variables}
        with tempfile.TemporaryFile("w+") as file:
            file.write(given)
            file.seek(0)
            if self.of_pilotage and forked.can_fork(environment):
                program = (str(Path(pilotage.main.__file__).with_name("slurm.py")), *words)
                return forked.run(
                    program, environment=environment, folder=place, stdin=file, timeout=PATIENCE
                )
            return subprocess.run(
                words,
                cwd=place,
                env=environment,
                stdin=file,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )

    def run_all(self) -> None:
        for script in SCRIPTS:
            self._submit(script)
        for script in REFUSED:
            done = self._sbatch(script)
            number = re.search(r"\d+", done.stdout)
            self._note(f"{script.name}: sbatch", done, number[0] if number else "")
            if number:
                self.run("scancel", number[0])
        self._cancel()
        self._commands()
        until(lambda: not self.run("squeue", "-h", "-o", "%i").stdout.strip(), what="the end of all jobs")
        self._files()
        self._records()

    def _sbatch(self, script: Script) -> subprocess.CompletedProcess[str]:
        folder = self.folder / script.name
        folder.mkdir()
        for name in script.files:
            if name.endswith("/"):
                (folder / name).mkdir()
            else:
                (folder / name).write_text("old\n")
        words = [word.format_map(self.numbers) for word in script.words]
        if not script.given and script.text is not None:
            (folder / "job.sh").write_text(script.text)
            words += ["job.sh", *script.arguments]
        return self.run("sbatch", *words, folder=script.name, given=script.given, **script.variables)

    def _submit(self, script: Script) -> None:
        done = self._sbatch(script)
        match = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
        if match:
            self.numbers[script.name] = match[1]
        self._note(f"{script.name}: sbatch", done, match[1] if match else "")

    def _note(self, what: str, done: subprocess.CompletedProcess[str], number: str = "") -> None:
        said = "a message" if done.stderr.strip() else "no message"
        output = done.stdout.replace(number, "<id>", 1) if number else done.stdout
        self.record[what] = f"code {done.returncode}, {said}, {self._plain(output)!r}"

    def _plain(self, text: str) -> str:
        text = text.replace(str(self.folder), "<folder>")
        for pattern, word in VARYING:
            text = re.sub(pattern, word, text)
        return text

    def _cancel(self) -> None:
        numbers = self.numbers
        shown = self.run("squeue", "-h", "-j", numbers["held"], "-o", HELD)
        self._note("held: squeue", shown)
        for names in ("long", "nowhere", "nowhere,short"):
            listed = self.run("squeue", "-h", "-j", numbers["held"], "-p", names, "-o", "%P")
            self._note(f"held: squeue -p {names}", listed)
        self._held_arrays()
        self._note("held: scontrol hold", self.run("scontrol", "hold", numbers["held"]))
        self._note("held: scancel", self.run("scancel", numbers["held"]))
        until((self.folder / "running/started").exists, what="the job's start")
        asked = ("squeue", "-h", "-j", numbers["running"], "-o", "%t %j %r %l %E")
        until(lambda: self.run(*asked).stdout.startswith("R "), what="the running job in squeue")
        self._note("running: squeue", self.run(*asked))
        self._note("running: scancel", self.run("scancel", numbers["running"]))
        tasks = [self.folder / f"running-array/started-{task}" for task in (0, 1)]
        until(lambda: all(task.exists() for task in tasks), what="the tasks' start")
        self._note("running-array: scancel", self.run("scancel", f"{numbers['running-array']}_1"))
        self._note("running-array: scancel all", self.run("scancel", numbers["running-array"]))

    def _held_arrays(self) -> None:
        """Jobs that wait, as squeue and scontrol show them."""
        numbers = self.numbers
        letters = "%i|%F|%K|%j|%t|%T|%r|%R|%D|%C|%b|%d|%h|%H|%I|%J|%n|%O|%v|%w|%W|%x|%X|%y|%Y|%z"
        for name in _WAITING:
            number = numbers[name]
            shown = self.run("squeue", "-h", "-j", number, "-o", f"{letters}|%E")
            self._note(f"{name}: squeue all", self._without_numbers(shown))
            by_variable = self.run("squeue", "-h", "-j", number, SQUEUE_FORMAT="%j|%T")
            self._note(f"{name}: SQUEUE_FORMAT", by_variable)
            told = self._without_numbers(self.run("scontrol", "show", "job", number))
            for line in told.stdout.splitlines():
                for name_of, value in re.findall(r"(\S+?)=(\S*)", line):
                    if name_of not in _OF_SITE:
                        self.record[f"{name}: scontrol {name_of}"] = self._plain(value)
        self._note("held: write", self.run("scontrol", "write", "batch_script", numbers["held"], "-"))
        task = f"{numbers['held-array']}_10"
        self._note(
            "held-array: a task", self._without_numbers(self.run("squeue", "-h", "-j", task, "-o", "%i|%K"))
        )
        self._note("held-array: scancel a task", self.run("scancel", task))
        for name in ("held-array", "held-short-array"):
            # Slurm has one record of all tasks that never started, and a row of sacct here is one task.
            self._note(f"{name}: scancel", self.run("scancel", numbers.pop(name)))

    def _without_numbers(self, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
        """Names of scripts in place of the numbers of their jobs."""
        for name in _WAITING:
            number = self.numbers[name]
            done.stdout = re.sub(rf"(?<!\d){number}(?!\d)", f"<{name}>", done.stdout)
        return done

    def _commands(self) -> None:
        """Commands that are about no job of a script, and those that wait."""
        folder = "commands"
        (self.folder / folder).mkdir()
        waited = self.run("sbatch", "--wait", "--parsable", "--wrap", "exit 9", folder=folder)
        ended = waited.stdout.strip()
        self._note("sbatch --wait", waited, ended)
        for what, words in {
            "sbatch --quiet": ("sbatch", "-Q", "--parsable", "--wrap", "true"),
            "sbatch --wait killed": ("sbatch", "--wait", "-Q", "--parsable", "--wrap", "kill -9 $$"),
            "sbatch --wait array": ("sbatch", "-W", "-a", "0-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID"),
            "squeue unknown": ("squeue", "-j", "99999999"),
            "squeue wrong": ("squeue", "--nosuch"),
            "squeue state": ("squeue", "-t", "NOSUCH"),
            "scancel unknown": ("scancel", "99999999"),
            "scancel nothing": ("scancel",),
            "scancel word": ("scancel", "word"),
            "scancel ended": ("scancel", ended),
            "sacct unknown": ("sacct", "-n", "-j", "99999999"),
            "sacct wrong": ("sacct", "--nosuch"),
            "sacct field": ("sacct", "-o", "NoSuch"),
            "scontrol unknown": ("scontrol", "show", "job", "99999999"),
            "scontrol word": ("scontrol", "nosuch"),
            "scontrol hold unknown": ("scontrol", "hold", "99999999"),
            "scontrol partition": ("scontrol", "show", "partition", "nowhere"),
            "sinfo wrong": ("sinfo", "--nosuch"),
            "sinfo": ("sinfo", "-h", "-s", "-o", "%P %a %R"),
            "sinfo partition": ("sinfo", "-h", "-s", "-p", "long", "-o", "%P %a"),
            "sinfo unknown": ("sinfo", "-p", "nowhere", "-o", "%P"),
            "sinfo state": ("sinfo", "-h", "-t", "down", "-o", "%P"),
            "hostnames": ("scontrol", "show", "hostnames", "n[08-10,3],gpu"),
            "hostlist": ("scontrol", "show", "hostlist", "n1,n2,n3,n7"),
            "srun tasks": ("srun", "-n", "2", "sh", "-c", "echo $SLURM_NTASKS"),
            "srun tasks fail": ("srun", "-n", "2", "sh", "-c", "exit $((SLURM_PROCID + 3))"),
            "srun": ("srun", "sh", "-c", "echo out; exit 5"),
            "srun unknown": ("srun", "no-such-command"),
            "srun nothing": ("srun",),
        }.items():
            done = self.run(*words, folder=folder)
            number = re.search(r"\d+", done.stdout) if words[0] == "sbatch" else None
            self._note(what, done, number[0] if number else "")

    def _files(self) -> None:
        for script in SCRIPTS:
            number = self.numbers.get(script.name, "")
            for path in sorted((self.folder / script.name).rglob("*")):
                if path.is_file() and path.name != "job.sh":
                    name = str(path.relative_to(self.folder / script.name))
                    shown = re.sub(rf"0*{number}(?!\d)", "<id>", name, count=1) if number else name
                    text = self._plain(path.read_text())
                    if name == "variables.txt":
                        for line in text.splitlines():
                            variable, _, value = line.partition("=")
                            self.record[f"{script.name}: {variable}"] = value
                    else:
                        self.record[f"{script.name}: {shown}"] = repr(text)

    def _records(self) -> None:
        """The rows of sacct. Slurm writes them a moment after the end of a job."""
        names = {number: name for name, number in self.numbers.items()}

        def complete() -> list[str]:
            asked = ("sacct", "-X", "-P", "-n", "-j", ",".join(names), "-o", f"JobID,{SACCT}")
            listed = self.run(*asked).stdout.splitlines()
            told = {row.split("|")[0].partition("_")[0] for row in listed}
            active = any(state in str(listed) for state in ("PENDING", "RUNNING", "COMPLETING"))
            return [] if active or told != names.keys() else listed

        found: list[str] = until(complete, what="the records")
        for row in sorted(found):
            number, *values = self._plain(row).split("|")
            array, _, task = number.partition("_")
            about = f"{names[array]} {task}".strip()
            for name, value in zip(SACCT.split(","), values, strict=True):
                self.record[f"{about}: sacct {name}"] = value
        # Slurm has all of them or the first one, by the moment of the cancellation.
        self.record.pop("held: sacct Partition")
