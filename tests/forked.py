"""Programs of Pilotage as forks of a process that has imported it: see `tests/fork_server.py`."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from tests import fork_server
from tests.deadlines import PATIENCE
from tests.namespaces import Namespace

STARTED_WITH = ("PYTHON", "LD_", "LC_", "LANG", "OPENSSL_", "SSL_")
"""Variables with these beginnings have their effect at the start of the interpreter or of a library."""


class ForkedProcess:
    """A program that runs in a fork; its methods are those of `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        stdin: int,
        stdout: int,
        stderr: int,
        network: Namespace | None = None,
    ) -> None:
        """`words` are the arguments of the interpreter: `-m MODULE ...` or `FILE ...`."""
        self.args = [sys.executable, *words]
        self.returncode: int | None = None
        self._reading = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_orders(), [b"o"], [theirs.fileno(), stdin, stdout, stderr])
        order = {
            "words": list(words),
            "environment": dict(environment),
            "folder": folder,
            "umask": _umask(),
            "network": "" if network is None else network.path,
        }
        self._socket.sendall(json.dumps(order).encode() + b"\n")
        self.pid = self._receive()

    def _receive(self) -> int:
        received = b""
        while len(received) < fork_server.NUMBER.size:
            part = b""
            with suppress(ConnectionError):
                part = self._socket.recv(fork_server.NUMBER.size - len(received))
            if not part:
                raise RuntimeError("the fork server of the tests has ended")
            received += part
        number: int = fork_server.NUMBER.unpack(received)[0]
        return number

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._look(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return found

    def _look(self, timeout: float | None) -> int | None:
        with self._reading:
            if self.returncode is None and self._has_ended(timeout):
                self.returncode = self._receive()
                self._socket.close()
            return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        # select() takes no descriptor above 1023, and some tests have thousands of connections.
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start() -> None:
    """Start the fork server before its first use. Forks of this process share it."""
    _orders()


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves as a new interpreter with this environment would."""
    return _of_the_start(environment) == _of_the_start(os.environ)


def run(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str | Path | None = None,
    stdin: IO[str] | int = subprocess.DEVNULL,
    timeout: float,
    network: Namespace | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with `text` and `capture_output`."""
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+", newline=None) as stdout,
        tempfile.TemporaryFile("w+", newline=None) as stderr,
    ):
        given = nothing.fileno() if stdin == subprocess.DEVNULL else stdin
        process = ForkedProcess(
            words,
            environment=environment,
            folder=str(folder or os.getcwd()),
            stdin=given if isinstance(given, int) else given.fileno(),
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            network=network,
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(process.args, code, stdout.read(), stderr.read())


def _of_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(STARTED_WITH)}


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


@cache
def _orders() -> socket.socket:
    """The socket of the fork server of this process, which starts at its first use."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(Path(fork_server.__file__).resolve()), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # A library of numpy would start threads, and a process with threads must not fork.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            cwd="/",
        )

    def end() -> None:
        ours.close()
        process.wait(PATIENCE)

    atexit.register(end)
    return ours
