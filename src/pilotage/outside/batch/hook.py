"""Runs the site's own program for requirements: bounded in time and output, and never through a shell."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Mapping

from pilotage.core.errors import InvalidInput
from pilotage.outside.batch.process_group import OutputTooLong, ProcessGroup

HOOK_TIMEOUT = 10.0
"""Seconds."""
MAX_OUTPUT = 16 * 1024
"""Bytes of its standard output."""
MAX_ERRORS = 2000
"""Bytes of its standard error output that are read; further ones are thrown away."""


class HookHung(InvalidInput):
    """The hook did not end in its time."""


class HookRunner:
    """Runs hooks in one thread, and ends the run when another thread closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: ProcessGroup | None = None
        self._is_closed = False

    def close(self) -> None:
        """Kill the hook that runs, and run none any more."""
        with self._lock:
            self._is_closed = True
            if self._running is not None:
                self._running.kill()

    def run(self, program: str, environment: Mapping[str, str], timeout: float = HOOK_TIMEOUT) -> str:
        """The standard output of `program`. `InvalidInput` with the reason if it fails, hangs or prints too much.

        `environment` is its whole environment. All its processes are killed at its end.
        """
        try:
            group = self._start(program, environment)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"it cannot be run: {getattr(error, 'strerror', None) or error}") from None
        end = time.monotonic() + timeout
        try:
            group.read(end, MAX_OUTPUT, MAX_ERRORS)
            group.await_end(end)
        except TimeoutError:
            raise HookHung(f"it did not end within {timeout:g} s") from None
        except OutputTooLong:
            raise InvalidInput(f"it printed more than {MAX_OUTPUT} bytes") from None
        finally:
            group.kill()
            status = group.reap()
            self._running = None
        return self._read_end(status, group)

    def _start(self, program: str, environment: Mapping[str, str]) -> ProcessGroup:
        with self._lock:
            if self._is_closed:
                raise InvalidInput("the server stops")
            self._running = ProcessGroup([program], environment)
            return self._running

    def _read_end(self, status: int, group: ProcessGroup) -> str:
        if self._is_closed:
            raise InvalidInput("the server stops")
        if status:
            said = " ".join(group.errors.decode(errors="replace").split())[:200]
            outcome = f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"
            raise InvalidInput(f"{outcome}: {said}" if said else outcome)
        try:
            return group.output.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidInput("it printed characters that are not ASCII") from None


def obstacle_to_run(program: str) -> str:
    """Why this process could not run a hook; empty: nothing is known against it."""
    try:
        mode = os.stat(program).st_mode
    except (OSError, ValueError) as error:
        return f"it cannot be run: {getattr(error, 'strerror', None) or error}"
    if not stat.S_ISREG(mode):
        return "it is no file"
    if not os.access(program, os.X_OK):
        return "it is not executable by the server"
    return ""
