"""Commands of storage places, as children of the pilot beside its payloads.

The loop's thread reaps all children, and sweeps orphans. So it must know which children are commands, and it hands the
exit status of a command to the thread that waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import Any, Dict, Sequence

from .events import Key

COMMAND: Key = (0, 0)
"""In the place of the payload's key, for the sweep of orphans."""


class NodeCommands:
    """The commands that run now. Several threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Dict[int, NodeCommand] = {}

    def start(self, words: Sequence[str], **options: Any) -> NodeCommand:
        """Start a command in a session of its own. Raises OSError."""
        with self._lock:  # its end is not looked at before it is known
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, **options)
            command = self._running[process.pid] = NodeCommand(process)
        return command

    def reap(self, pid: int) -> bool:
        """Reap a dead child if it is a command. For the loop's thread."""
        with self._lock:
            command = self._running.pop(pid, None)
        if command is None:
            return False
        command.end(os.waitpid(pid, 0)[1])
        return True

    def leaders(self) -> Dict[int, Key]:
        with self._lock:
            return dict.fromkeys(self._running, COMMAND)


class NodeCommand:
    """One command."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._ended = threading.Event()

    def end(self, status: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # Then `subprocess` does not wait for the process any more.
        self._process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        self._ended.set()

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within as many seconds."""
        return self._ended.wait(seconds)

    @property
    def exit_code(self) -> int:
        """A negative number is a signal."""
        return int(self._process.returncode)

    def kill(self) -> None:
        """End it, and all processes of its session's first group."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


COMMANDS = NodeCommands()
"""The commands of the process, which has one set of children."""
