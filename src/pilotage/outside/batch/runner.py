"""Runs the commands of a batch system on this machine: argument lists, never a shell string."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotage.outside.batch.process_group import ProcessGroup


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The end of one command."""

    status: int | None
    """Exit code, negative for a signal; None: the command did not end in time and was killed."""
    output: str = ""
    errors: str = ""
    unreached: str = ""
    """Why the way to the command gave no answer, then `status` is None. The command may have run."""
    never_began: bool = False
    """Whether the command certainly did not run, as the way to it ended before. Then `unreached` says why."""

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

    @property
    def is_remote(self) -> bool:
        """Whether that is another host, whose files the server cannot open."""
        ...

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        """Run `command` with `text` as its standard input. Raises nothing; a missing command has status MISSING."""
        ...

    def close(self) -> None:
        """Kill the commands that run, and refuse further ones."""
        ...


class LocalRunner:
    """Runs commands on this machine. `environment` is the whole environment of each command."""

    is_remote = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._running: set[ProcessGroup] = set()
        self._closed = False

    def close(self) -> None:
        """Kill the commands that run, and refuse further ones."""
        with self._lock:
            self._closed = True
            for group in self._running:
                group.kill()

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        try:
            group = self._start(command, text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            return CommandResult(MISSING, errors=f"{command[0]}: {reason}")
        if group is None:
            return CommandResult(None, errors="the server stops")
        end, in_time = time.monotonic() + timeout, False
        try:
            group.read(end)
            group.await_end(end)
            in_time = True
        except TimeoutError:
            pass
        finally:
            if not in_time:
                group.kill()
            status = group.reap()
            with self._lock:
                self._running.discard(group)
        return CommandResult(status if in_time else None, _decoded(group.output), _decoded(group.errors))

    def _start(self, command: Sequence[str], text: str) -> ProcessGroup | None:
        """None: the server stops."""
        with self._lock:
            if self._closed:
                return None
            group = ProcessGroup(command, self._environment, text.encode())
            self._running.add(group)
            return group


def _decoded(output: bytearray) -> str:
    return output.decode(errors="replace")
