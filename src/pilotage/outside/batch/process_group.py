"""A command with the processes that it starts: read for a bounded time, and killed as a group from any thread."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_PIECE: Final = 65536


class OutputTooLong(Exception):
    """The command printed more than is read."""


class ProcessGroup:
    """A command that leads a process group of its own.

    The group gets a signal only until the command is reaped: then its id may be that of a foreign group.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], text: bytes = b"") -> None:
        """Start it without a shell, in the folder `/`, with `text` as its standard input.

        `OSError`, `ValueError`: it cannot start.
        """
        with _file_of(text) as stdin:
            self._process = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd="/",
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._is_reaped = False
        self._killed = os.eventfd(0, os.EFD_CLOEXEC)
        self.output, self.errors = bytearray(), bytearray()
        """The bytes that it has printed so far."""

    def kill(self) -> None:
        """Kill all its processes. A `read` or `await_end` of another thread returns at once."""
        with self._lock:
            if not self._is_reaped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                os.eventfd_write(self._killed, 1)

    def read(self, end: float, most_output: int | None = None, most_errors: int | None = None) -> None:
        """Read until all its processes have closed both streams. `TimeoutError`: not at the instant `end`.

        `OutputTooLong`: it printed more than `most_output` bytes. Errors beyond `most_errors` are thrown away.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._killed, selectors.EVENT_READ)
            for stream, read in ((self._process.stdout, self.output), (self._process.stderr, self.errors)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, read)
            while len(selector.get_map()) > 1:
                for key, _ in _ready(selector, end):
                    if key.fd == self._killed:
                        return
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                    key.data.extend(piece)
                if most_output is not None and len(self.output) > most_output:
                    raise OutputTooLong
                if most_errors is not None:
                    del self.errors[most_errors:]

    def await_end(self, end: float) -> None:
        """Wait for the end of the command and leave it a zombie. `TimeoutError`: it runs at the instant `end`."""
        descriptor = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._killed, selectors.EVENT_READ)
                selector.register(descriptor, selectors.EVENT_READ)
                _ready(selector, end)
        finally:
            os.close(descriptor)

    def reap(self) -> int:
        """Wait for its end; its exit code, negative for a signal. Call it once, after an end or a kill."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            status = self._process.wait()
            self._is_reaped = True
            os.close(self._killed)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return status


def _ready(selector: selectors.BaseSelector, end: float) -> list[tuple[selectors.SelectorKey, int]]:
    """The streams that can be read. `TimeoutError`: it is later than `end`."""
    ready = selector.select(max(0.0, end - time.monotonic()))
    if not ready or time.monotonic() > end:
        raise TimeoutError
    return ready


@contextlib.contextmanager
def _file_of(text: bytes) -> Iterator[int]:
    """A file in memory with this text, at its beginning."""
    if not text:
        with open(os.devnull, "rb") as empty:
            yield empty.fileno()
        return
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as content:
            content.write(text)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
