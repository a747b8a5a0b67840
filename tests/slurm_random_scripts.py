"""Scripts at random that ask what they were given: variables, arguments, input, signals, and steps.

A seed makes a script. It runs on two systems, and its output shall be the same, byte by byte.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.deadlines import PATIENCE
from tests.instance import until
from tests.slurm_scripts import VARYING

_VALUES: Final = (
    *(
        b"",
        b"plain",
        b"two words",
        b" ends with a blank ",
        b"line\nbreak",
        b"tab\there",
        b"100%s %j %%",
        b"*",
    ),
    *(
        b"$HOME `id`",
        b"'single'",
        b'"double"',
        b"back\\slash",
        b"-n",
        b"--",
        b"\xff",
        b"a\xfe\x80b",
        b"\xc3\xa9",
    ),
    *(b"\xed\xa0\x80", b"=", b"a=b", b"{}", b"long" * 2000),
)
_NAMES: Final = ("MINE", "OTHER", "_under", "odd-name", "a.b", "X%s")
_OF_SHELLS: Final = {
    "UID": b"7",
    "EUID": b"7",
    "PPID": b"7",
    "SHELLOPTS": b"braceexpand",
    "BASHOPTS": b"extglob",
    "IFS": b"x",
    "PS4": b"> ",
    "CDPATH": b"/nowhere",
    "HOME": b"/nowhere",
}
_OF_CLUSTER: Final = re.compile(
    r"srun: (Job .* step creation temporarily disabled|Step created for job|Job step aborted|Force Terminated"
    r"|got SIGCONT|forcing job termination)|.* \*\*\* (STEP|JOB) .* CANCELLED"
)
"""Lines about the work of Slurm itself."""
_SIGNALS: Final = ("USR1", "USR2", "HUP", "INT", "QUIT", "TERM", "ALRM")
_SIZES: Final = (b"--ntasks=1", b"--ntasks-per-node=1", b"--tasks-per-node=1", b"--tasks=1", b"--nodes=1")
_BEFORE: Final = 52
"""Seconds of a minute before whose end the signal comes here: eight seconds for the start of a step."""


@dataclass
class RandomScript:
    """One submission, whose folder has the number of its seed."""

    seed: int
    text: str = ""
    words: list[bytes] = field(default_factory=list)
    arguments: list[bytes] = field(default_factory=list)
    variables: dict[bytes, bytes] = field(default_factory=dict)
    signal: str = ""
    """`[B:]NAME`; empty: none."""


def random_script(seed: int) -> RandomScript:
    """The script of a seed, which is the same on each machine."""
    draw = random.Random(seed)
    made = RandomScript(seed)
    for name in draw.sample(_NAMES, draw.randint(0, 4)):
        made.variables[name.encode()] = draw.choice(_VALUES)
    for name in draw.sample(sorted(_OF_SHELLS), draw.randint(0, 3)):
        made.variables[name.encode()] = _OF_SHELLS[name]
    if draw.random() < 0.3:
        made.variables[b"BASH_FUNC_greet%%"] = b'() {  echo "hello $1"\n}'
    made.arguments = [draw.choice(_VALUES) for _ in range(draw.randint(0, 5))]
    has_input = draw.random() < 0.4
    if has_input:
        made.words.append(b"--input=input.txt")
    if draw.random() < 0.3:
        made.words.append(draw.choice((b"--export=ALL", b"--export=ALL,MORE=a b", b"--export=ALL,MINE=new")))
    is_bash = draw.random() < 0.7
    # The first srun takes all input of the script in Slurm.
    probes = [*_PROBES, *(_READERS if has_input else _STEPS), *(_BASH_PROBES if is_bash else ())]
    lines = draw.sample(probes, draw.randint(1, 5))
    if has_input and draw.random() < 0.5:
        lines.append("srun cat; echo $?")
    if draw.random() < 0.3:
        made.signal = draw.choice(("", "B:")) + draw.choice(_SIGNALS)
        lines.append(_signalled(draw, made.signal.rpartition(":")[2]))
    lines.append(f"exit {draw.choice((0, 1, 3, 77))}")
    if draw.random() < 0.3:
        made.words += draw.sample(_SIZES, draw.randint(1, 2))
    made.text = "\n".join(
        [draw.choice(("#!/bin/bash", "#!/usr/bin/env bash")) if is_bash else "#!/bin/sh", *lines, ""]
    )
    return made


_SHOWN: Final = "MINE|OTHER|MORE|_under|odd-name|a.b|X%s|UID|EUID|PS4|CDPATH|HOME|BASH_FUNC"
_PROBES: Final = (
    'echo "$# arguments"; for word; do printf "%s" "$word" | od -An -c; done',
    f"env -0 | grep -azE '^({_SHOWN})' | sort -z | od -An -c",
    "grep -E '^(SigIgn|SigBlk)' /proc/self/status",
    "ls /proc/self/fd | wc -l",
    'trap "echo trapped USR1" USR1; kill -USR1 $$; echo "$?"',
    'trap "echo trapped INT" INT; kill -INT $$; echo "$?"',
    'trap "echo trapped HUP" HUP; kill -HUP $$; trap - HUP',
    "sh -c 'kill -TERM $$'; echo \"$?\"",
    '(set -- $(ps -o pid=,pgid= -p $$); [ "$1" = "$2" ] && echo leads)',
    'umask; pwd; echo "$SLURM_JOB_NAME $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_NPROCS $SLURM_PROCID"',
    '[ "$SLURM_TASK_PID" = $$ ] && echo own number',
    "no-such-command; echo $?",
    'basename "$0"; stat -c %A "$0"',
    "yes | head -1",
)
_BASH_PROBES: Final = (
    'greet you; echo "$?"',
    'printf "%q\\n" "$@"',
    "shopt -p extglob; set -o | grep xtrace",
    'declare -p MINE UID EUID 2>/dev/null | grep -v "UID=\\"0\\""',
    'bash -c \'greet again; printf "%q\\n" "$MINE"\'',
)
_READERS: Final = ("cat; echo after", 'read -r line; echo "read $? $line"')
_STEPS: Final = (
    *_READERS,
    "srun sh -c 'exit 5'; echo $?",
    "srun sh -c 'kill -USR2 $$'; echo $?",
    "srun no-such-command; echo $?",
    "srun /etc/passwd; echo $?",
    'srun printf "%s|" "$@" | od -An -c',
    'srun sh -c \'printf "%s" "$MINE" | od -An -c\'',
    "srun bash -c 'greet step; echo $?'",
    "srun grep -E '^SigIgn' /proc/self/status",
    "srun sh -c 'trap \"echo task USR1\" USR1; kill -USR1 $$; echo $?'",
    'srun sh -c \'[ "$(ps -o pgid= -p $$ | tr -d " ")" = $$ ] && echo leads\'',
    "srun --input=none cat; echo $?",
)


def _signalled(draw: random.Random, name: str) -> str:
    """Lines that wait for the signal, in the script and in a step. All ends by the file `stop`."""
    shell = draw.choice((f'trap "echo shell has {name}" {name}', "true"))
    task = draw.choice((f'trap "echo task has {name}; exit 9" {name}; ', ""))
    loop = "until [ -e stop ]; do sleep 0.2; done"
    child = draw.choice((f"sh -c '{loop}' &", "true"))
    return (
        f"{shell}\n{child}\nsrun sh -c '{task}touch ready; {loop}; echo task ends' 2>step.txt &\nstep=$!\n"
        'while kill -0 $step 2>/dev/null; do wait $step; code=$?; echo "code $code"; touch stop; done; wait; echo all'
    )


class RandomDriver:
    """Runs the scripts on one system. `of_pilotage`: `--signal` is as good as scancel, which signals no job there."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, of_pilotage: bool) -> None:
        self.folder = folder
        self.environment = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        # Values that are shown, or change answers, and do not come from the submitting shell in the same way.
        self.environment |= {b"HOME": b"/tmp", b"LC_ALL": b"C"}
        self.of_pilotage = of_pilotage
        self.numbers: dict[int, str] = {}

    def run_all(self, scripts: list[RandomScript]) -> dict[int, list[str]]:
        """The lines that each has printed, by seed."""
        for script in scripts:
            self._submit(script)
        waiting = [] if self.of_pilotage else [script for script in scripts if script.signal]

        def have_ended() -> bool:
            for script in list(waiting):
                if (self.folder / str(script.seed) / "ready").exists():
                    waiting.remove(script)
                    self._signal(script)
            return not self._run(b"squeue", b"-h", b"-o", b"%i").strip()

        until(have_ended, PATIENCE * (1 + len(scripts) / 10), "the end of all scripts")
        return {script.seed: self._lines(script) for script in scripts}

    def _submit(self, script: RandomScript) -> None:
        folder = self.folder / str(script.seed)
        folder.mkdir()
        (folder / "job.sh").write_text(script.text)
        (folder / "input.txt").write_bytes(b"first line\nsecond \xff\n")
        words = [b"--parsable", b"--output=output.txt", b"--time=1", *script.words]
        if script.signal and self.of_pilotage:
            words.append(f"--signal={script.signal}@{_BEFORE}".encode())
        said = self._run(
            b"sbatch", *words, b"job.sh", *script.arguments, folder=folder, more=script.variables
        )
        self.numbers[script.seed] = said.decode().strip()

    def _signal(self, script: RandomScript) -> None:
        to_script, _, name = script.signal.rpartition(":")
        words = [f"--signal={name}", *(["--batch"] if to_script else []), self.numbers[script.seed]]
        self._run(b"scancel", *[word.encode() for word in words])

    def _run(
        self, *words: bytes, folder: Path | None = None, more: Mapping[bytes, bytes] | None = None
    ) -> bytes:
        place = folder or self.folder
        environment = {**self.environment, b"PWD": bytes(place), **(more or {})}
        done = subprocess.run(
            words, cwd=place, env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
        assert not done.returncode, (words, done.stderr)
        return done.stdout

    def _lines(self, script: RandomScript) -> list[str]:
        folder = self.folder / str(script.seed)
        output, errors = folder / "output.txt", folder / "step.txt"
        said = output.read_bytes()
        if said.endswith(
            b"all\n"
        ):  # else the signal has ended the script, and a step says something or nothing
            said += errors.read_bytes()
        text = said.decode("utf-8", "backslashreplace")
        text = text.replace(str(self.folder), "<folder>")
        for pattern, word in VARYING:
            text = re.sub(pattern, word, text)
        # Errors come from other processes than the rest, at any moment.
        lines = [line for line in text.splitlines() if not _OF_CLUSTER.match(line)]
        told = sorted(line for line in lines if ": error: " in line)
        return [line for line in lines if ": error: " not in line] + told
