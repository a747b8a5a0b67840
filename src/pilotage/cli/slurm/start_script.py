"""The program of a job: a small script that sets Slurm's variables and calls the batch script.

Both travel in the arguments of /bin/sh, as a compressed archive. So the batch script stays as it was at
submission. No text of the user is taken for a placeholder.
"""

from __future__ import annotations

import base64
import io
import re
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from typing import Final

from pilotage.cli.export_option import parse_export
from pilotage.core.errors import InvalidInput

_PIECE: Final = 100_000
"""Characters of one argument."""
_MOST: Final = 900_000
"""Characters of all of them: a description has a limit."""
_BOOT: Final = 'IFS=; echo "$*" | base64 -d | tar -xzf - -C "$TMPDIR" && exec /bin/sh "$TMPDIR/slurm_start"'
WARNING_VARIABLE: Final = "PILOTAGE_SLURM_SIGNAL"
"""The signal that srun gives its command before the end of the job."""
_OF_JOB: Final = ("SLURM_", "SLURMD_", "SBATCH_")
"""Variables of a job from which another one is submitted: they are about that job."""
_OF_PROCESS: Final = ("TMPDIR", "PWD", "OLDPWD", "SHLVL", "_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLES: Final = """\
export SLURM_JOB_ID="$PILOTAGE_JOB" SLURM_JOBID="$PILOTAGE_JOB"
if [ -n "$SLURM_ARRAY_TASK_ID" ]; then
  SLURM_ARRAY_JOB_ID=$(expr "$PILOTAGE_JOB" - "$PILOTAGE_ARRAY_POSITION")
  export SLURM_ARRAY_JOB_ID
fi
SLURMD_NODENAME=$(hostname)
SLURMD_NODENAME=${SLURMD_NODENAME%%.*}
export SLURMD_NODENAME SLURM_JOB_NODELIST="$SLURMD_NODENAME" SLURM_NODELIST="$SLURMD_NODENAME"
export SLURM_SUBMIT_HOST SLURM_TOPOLOGY_ADDR="$SLURMD_NODENAME" SLURM_TOPOLOGY_ADDR_PATTERN=node
export SLURM_JOB_CPUS_PER_NODE="$PILOTAGE_PROCESSORS" SLURM_CPUS_ON_NODE="$PILOTAGE_PROCESSORS"
export SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
export SLURM_TASKS_PER_NODE="$SLURM_NTASKS" SLURM_TASK_PID="$$" SLURM_GTIDS=0
export SLURM_RESTART_COUNT=$(expr "$PILOTAGE_EPOCH" - 1)
[ "$SLURM_RESTART_COUNT" -gt 0 ] || unset SLURM_RESTART_COUNT
export SLURM_CLUSTER_NAME=pilotage ENVIRONMENT=BATCH
[ -n "$USER" ] || USER=$(id -un)
[ -n "$LOGNAME" ] || LOGNAME=$USER
export USER LOGNAME
"""


def start_arguments(start: str, script: bytes) -> list[str]:
    """The arguments of /bin/sh. Raises InvalidInput if they are too long."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("slurm_start", start.encode()), ("slurm_script", script)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o700
            archive.addfile(entry, io.BytesIO(content))
    text = base64.b64encode(packed.getvalue()).decode()
    if len(text) > _MOST:
        raise InvalidInput(
            f"the batch script, its arguments and variables have {len(text):,} characters after compression;"
            f" the limit is {_MOST:,}",
            hint="--export=NONE sends no variables",
        )
    return [
        "-c",
        _BOOT,
        "slurm_start",
        *(text[place : place + _PIECE] for place in range(0, len(text), _PIECE)),
    ]


def packed_script(arguments: Sequence[str]) -> bytes | None:
    """The batch script in arguments that `start_arguments` made; None: they are others."""
    if tuple(arguments[:2]) != ("-c", _BOOT):
        return None
    packed = io.BytesIO(base64.b64decode("".join(arguments[3:])))
    with tarfile.open(fileobj=packed, mode="r:gz") as archive:
        file = archive.extractfile("slurm_script")
        return file.read() if file is not None else None


def start_text(
    variables: Mapping[str, str],
    arguments: Sequence[str],
    *,
    further: Sequence[str],
    standard_input: str,
    warning: str,
) -> str:
    """The start script. `variables` are of the submitting shell; `further`: lines that set variables on the node.

    `warning`: `[B:]SIGNAL` before the end, or "".
    """
    lines = ["#!/bin/sh"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if _NAME.match(name)]
    # sh cannot export the functions of bash, whose variables have other names.
    functions = [f"{name}={value}" for name, value in variables.items() if not _NAME.match(name)]
    script = shlex.join(["env", *functions]) if functions else ""
    lines += [_VARIABLES, *further]
    lines.append(f"exec < {shlex.quote(standard_input or '/dev/null')} || exit 1")
    lines.append(_call(f'{script} "$TMPDIR/slurm_script" {shlex.join(arguments)}'.strip(), warning))
    return "\n".join(lines) + "\n"


def sent_variables(word: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(variables of `--export WORD`, names that are not set here). Functions of bash come along with ALL."""
    variables, unset = parse_export(word, environment)
    if any(part.strip().upper() == "ALL" for part in word.split(",")):
        variables |= {name: value for name, value in environment.items() if name.startswith("BASH_FUNC_")}
    kept = {name: value for name, value in variables.items() if not name.startswith(_OF_JOB)}
    return {name: value for name, value in kept.items() if name not in _OF_PROCESS}, unset


def _call(call: str, warning: str) -> str:
    """The pilot warns the whole process group by SIGUSR1; srun hands it on to its command as the signal wanted."""
    to_script, _, signal = warning.rpartition(":")
    if not warning or warning == "B:USR1":
        return f"exec {call}"
    if not to_script:
        return f"export {WARNING_VARIABLE}={signal}\ntrap '' USR1\nexec {call}"
    return (
        f"trap '' USR1\n{call} &\nchild=$!\ntrap 'kill -s {signal} $child' USR1\nwait $child; code=$?\n"
        "while kill -0 $child 2>/dev/null; do wait $child; code=$?; done\nexit $code"
    )
