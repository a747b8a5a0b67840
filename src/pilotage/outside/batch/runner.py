"""Runs the commands of a batch system on this machine: argument lists, never a shell string."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The end of one command."""

    status: int | None
    """Exit code, negative for a signal; None: the command did not end in time and was killed."""
    output: str = ""
    errors: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status == 0


MISSING = 127
"""Exit code for a command that is not installed or may not be executed, as a shell gives it."""


TIMEOUT = 60.0
"""Seconds for one command, unless the caller says otherwise.

Slurm's clients give up after three times MessageTimeout; Grid Engine's wait without end for a master that hangs.
"""


class Runner(Protocol):
    """Runs a command where the batch system's clients are installed."""

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        """Run `command` with `text` as its standard input. Raises nothing; a missing command has status MISSING."""
        ...

    def close(self) -> None:
        """Kill the commands that run, and refuse further ones."""
        ...


class LocalRunner:
    """Runs commands on this machine. `environment` is the whole environment of each command."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def close(self) -> None:
        """Kill the commands that run, and refuse further ones."""
        self._closed = True
        for process in tuple(self._running):
            _kill_group(process)

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        if self._closed:
            return CommandResult(None, errors="the server stops")
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return CommandResult(MISSING, errors=f"{command[0]}: {error.strerror}")
        self._running.add(process)
        try:
            output, errors = process.communicate(text.encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            output, errors = process.communicate()
            return CommandResult(None, _decoded(output), _decoded(errors))
        finally:
            self._running.discard(process)
        return CommandResult(process.returncode, _decoded(output), _decoded(errors))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command together with the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _decoded(output: bytes) -> str:
    return output.decode(errors="replace")
