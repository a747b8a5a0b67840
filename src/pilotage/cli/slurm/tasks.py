"""The tasks of srun in a job: as many processes of the command as --ntasks names."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Final

from pilotage.cli.export_option import parse_export
from pilotage.cli.slurm.amounts import format_ranges, parse_count
from pilotage.cli.slurm.sbatch import exit_status
from pilotage.cli.slurm.start_script import STEPS_SIGNAL, WARNING_VARIABLE
from pilotage.cli.slurm.usage import note
from pilotage.core.errors import InvalidInput

_PASSED_ON: Final = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGCONT, signal.SIGTERM),
    *(signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2),
)
_PATTERN: Final = re.compile(r"%(\d*)([A-Za-z%])")


def run_tasks(values: Mapping[str, str], command: list[str]) -> int:
    """The highest exit code of the tasks."""
    count = parse_count(values.get("ntasks") or os.environ.get("SLURM_NTASKS") or "1", "--ntasks")
    started: list[subprocess.Popen[bytes]] = []
    host = socket.gethostname().partition(".")[0]
    _pass_signals_on(started)
    labels: list[threading.Thread] = []
    refused: list[tuple[int, int]] = []
    for task in range(count):
        try:
            process = _start(values, command, task, count)
        except OSError as error:
            note(f"slurmstepd-{host}", f"error: execve(): {command[0]}: {error.strerror}")
            refused.append((error.errno or 1, 0))
            continue
        started.append(process)
        if "label" in values and process.stdout is not None:
            labels.append(threading.Thread(target=_copy_lines, args=(process.stdout, task)))
            labels[-1].start()
    ends = refused + [(max(code, 0), max(-code, 0)) for code in [process.wait() for process in started]]
    for thread in labels:
        thread.join()
    report_ends(ends, host)
    return max(exit_status(*end) for end in ends)


def report_ends(ends: Sequence[tuple[int, int]], host: str) -> None:
    """Tell which tasks have failed, in the words of Slurm. `ends`: (exit code, signal) of each task."""
    for code, number in dict.fromkeys(end for end in ends if any(end)):
        tasks = [task for task, end in enumerate(ends) if end == (code, number)]
        said = signal.strsignal(number) if number else f"Exited with exit code {code}"
        note("srun", f"error: {host}: task{'s'[: len(tasks) - 1]} {format_ranges(tasks)}: {said}")


def _start(values: Mapping[str, str], command: list[str], task: int, count: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if "export" in values:
        chosen, _ = parse_export(values["export"], os.environ)
        environment = {name: value for name, value in os.environ.items() if name.startswith(_OF_JOB)} | chosen
    environment |= {
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NTASKS": str(count),
        "SLURM_NPROCS": str(count),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(count),
    }
    output = _opened(values, "output", task)
    error = _opened(values, "error", task)
    source = _source(values.get("input", ""), task)
    labelled = subprocess.PIPE if "label" in values and output is None else None
    try:
        return subprocess.Popen(
            [shutil.which(command[0]) or command[0], *command[1:]],
            env=environment,
            cwd=values.get("chdir") or None,
            stdin=source,
            stdout=output or labelled,
            stderr=error or (subprocess.STDOUT if output is not None else None),
            # Slurm sends a signal to all processes of a task.
            process_group=0,
        )
    finally:
        for file in (source, output, error):
            if file is not None:
                file.close()


_OF_JOB: Final = ("SLURM_", "PILOTAGE_", "TMPDIR", "PATH", "HOME")


def _source(text: str, task: int) -> IO[bytes] | None:
    """The file of --input; None: the input of srun. Raises InvalidInput."""
    if not text or text == "all":
        return None
    name = os.devnull if text == "none" else _file_name(text, task)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise InvalidInput(f"--input {name}: it cannot be opened: {error.strerror}") from error


def _opened(values: Mapping[str, str], name: str, task: int) -> IO[bytes] | None:
    text = values.get(name, "")
    if not text or text == "none":
        return None
    mode = values.get("open-mode") or os.environ.get("SLURM_OPEN_MODE", "")
    return Path(_file_name(text, task)).open("ab" if mode.startswith("a") else "wb")


def _file_name(text: str, task: int) -> str:
    environment = os.environ
    job = environment["SLURM_JOB_ID"]
    host = socket.gethostname().partition(".")[0]
    known = {
        "j": job,
        "J": f"{job}.0",
        "s": "0",
        "A": environment.get("SLURM_ARRAY_JOB_ID", job),
        "a": environment.get("SLURM_ARRAY_TASK_ID", "4294967294"),
        "t": str(task),
        "n": "0",
        "N": host,
        "x": environment.get("SLURM_JOB_NAME", ""),
        "u": environment.get("SLURM_JOB_USER", ""),
        "%": "%",
    }

    def place(match: re.Match[str]) -> str:
        if match[2] not in known:
            raise InvalidInput(f"{text}: %{match[2]} is not understood")
        return known[match[2]].zfill(int(match[1] or 0))

    return _PATTERN.sub(place, text)


def _pass_signals_on(started: list[subprocess.Popen[bytes]]) -> None:
    """Give the tasks the signals of srun, as Slurm does, and the warning of the pilot as the signal of --signal.

    A shell lets commands in the background ignore some signals. The tasks shall not: a handler ends with execve.
    """
    warning = signal.Signals[f"SIG{STEPS_SIGNAL}"]
    wanted = os.environ.get(WARNING_VARIABLE, "")

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number == warning:
            number = signal.Signals[f"SIG{wanted}"]
        for process in started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    ignored = [number for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    for number in (*_PASSED_ON, *([warning] if wanted else [])):
        signal.signal(number, (lambda number, frame: None) if number in ignored else pass_on)


def _copy_lines(stream: IO[bytes], task: int) -> None:
    for line in stream:
        sys.stdout.buffer.write(b"%d: " % task + line)
        sys.stdout.flush()
