"""Batch scripts of Slurm's commands: they are started as Slurm starts them, without a shell that changes anything."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import signal
import socket
from typing import Dict, Iterator, List, Mapping, Optional, Sequence

from pilotage.wire.batch_script import PROGRAM, ScriptOrder, unpacked
from pilotage.wire.pilot import Payload

from .cannot_run import NOT_EXECUTABLE, NOT_FOUND, CannotRun
from .several_tasks import SOURCE

_SCRIPT = "slurm_script"
OWN_PID = "SLURM_TASK_PID"
"""The variable that has the process's own number."""


_REFUSALS = {NOT_FOUND: errno.ENOENT, NOT_EXECUTABLE: errno.EACCES}
"""Exit codes of Slurm, by the codes of a shell."""


def script_order(payload: Payload) -> Optional[ScriptOrder]:
    """The order of a job of sbatch or srun; None: it is another job. Raises ValueError."""
    if payload.executable != PROGRAM:
        return None
    order = unpacked(payload.arguments)
    if order.signal and f"SIG{order.signal}" not in signal.Signals.__members__:
        raise ValueError(f"the signal {order.signal} is not known")
    if not order.script and not order.arguments:
        raise ValueError("neither a script nor a command is given")
    return order


def batch_command(order: ScriptOrder, tmp: str, python: str) -> List[str]:
    """The words of its command. The script is written below `tmp`. Raises OSError."""
    if not order.script:
        several = [python, "-c", SOURCE, str(order.tasks)] if order.tasks > 1 else []
        return several + order.arguments
    path = os.path.join(tmp, _SCRIPT)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700), "wb") as file:
        file.write(order.script.encode("utf-8", "surrogateescape"))
    return [path, *order.arguments]


def batch_variables(order: ScriptOrder, payload: Payload, given: Mapping[str, str]) -> Dict[str, str]:
    """The variables that it has besides `given`, which every job has."""
    host = socket.gethostname().partition(".")[0]
    made = dict(order.variables)
    known = {**given, **made}
    job, restarts = int(given["PILOTAGE_JOB"]), int(given["PILOTAGE_EPOCH"]) - 1
    if known.get("SLURM_ARRAY_TASK_ID"):
        made["SLURM_ARRAY_JOB_ID"] = str(job - int(known.get("PILOTAGE_ARRAY_POSITION", "")))
    if restarts > 0:
        made["SLURM_RESTART_COUNT"] = str(restarts)
    for partition, ces in order.partitions.items():
        if given["PILOTAGE_CE"] in ces:
            made["SLURM_JOB_PARTITION"] = partition
            break
    if "PWD" in known and payload.folder:
        made["PWD"] = payload.folder
    made.update(dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), str(job)))
    made.update(dict.fromkeys(("SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR", "HOSTNAME"), host))
    made.update(dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), host))
    made.update(
        dict.fromkeys(("SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"), str(payload.processors)),
        SLURM_TOPOLOGY_ADDR_PATTERN="node",
        SLURM_TASKS_PER_NODE=known.get("SLURM_NTASKS", "1"),
        SLURM_CLUSTER_NAME="pilotage",
        ENVIRONMENT="BATCH",
    )
    made.update(dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), "1"))
    made.update(dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS"), "0"))
    user = known.get("USER") or _own_name()
    return {**made, "USER": user, "LOGNAME": known.get("LOGNAME") or user}


@contextlib.contextmanager
def refused_as_in_slurm(payload: Payload, files: Sequence[int]) -> Iterator[None]:
    """Tell a refusal in the words of Slurm, if it is a job of sbatch or srun. `files`: of its output; error is last."""
    try:
        yield
    except CannotRun as failed:
        number = _REFUSALS.get(failed.exit_code or 0, 0)
        with contextlib.suppress(ValueError):
            order = script_order(payload) if number else None
            if order is not None and files:
                failed.exit_code = number
                os.write(files[-1], _refusal(order, number).encode("utf-8", "surrogateescape"))
        raise


def _refusal(order: ScriptOrder, number: int) -> str:
    name = (order.arguments or [""])[0]
    if order.script:
        interpreter = order.script.partition("\n")[0][2:].split()
        name = f"bad interpreter({interpreter[0] if interpreter else ''})"
    host = socket.gethostname().partition(".")[0]
    return f"slurmstepd-{host}: error: execve(): {name}: {os.strerror(number)}\n"


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
