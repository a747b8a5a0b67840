"""A command with the processes that it starts: read for a bounded time, and killed as a group from any thread."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_PIECE: Final = 65536
_ROOT: Final = Path("/")


class OutputTooLong(Exception):
    """The command printed more than is read."""


class ProcessGroup:
    """A command that leads a process group of its own.

    The group gets a signal only until the command is reaped: then its id may be that of a foreign group.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        text: bytes | None = b"",
        folder: Path = _ROOT,
    ) -> None:
        """Start it without a shell, in `folder`, with `text` as its standard input. None: `feed` gives it later.

        `OSError`, `ValueError`: it cannot start.
        """
        with _file_of(text or b"") as stdin:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if text is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        self._unwritten = memoryview(b"")
        self._closes_input = True
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

    def feed(self, text: bytes, *, keep_open: bool = False) -> None:
        """Give a command that was started without input some of it. `read` writes it, and then closes the input.

        `keep_open`: more may follow.
        """
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._unwritten = memoryview(bytes(self._unwritten) + text)
        self._closes_input = not keep_open

    def read(
        self,
        end: float,
        most_output: int | None = None,
        most_errors: int | None = None,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read until all its processes have closed both streams. `TimeoutError`: not at the instant `end`.

        `OutputTooLong`: it printed more than `most_output` bytes. Errors beyond `most_errors` are thrown away.
        `is_enough`: asked after each piece whether to return at once.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._killed, selectors.EVENT_READ)
            for stream, read in ((self._process.stdout, self.output), (self._process.stderr, self.errors)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, read)
            if self._unwritten:
                assert self._process.stdin is not None
                selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while len(selector.get_map()) > 1:
                for key, events in _ready(selector, end):
                    if key.fd == self._killed:
                        return
                    if events & selectors.EVENT_WRITE:
                        self._write(selector)
                        continue
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                    key.data.extend(piece)
                if most_output is not None and len(self.output) > most_output:
                    raise OutputTooLong
                if most_errors is not None:
                    del self.errors[most_errors:]
                if is_enough():
                    return

    def _write(self, selector: selectors.BaseSelector) -> None:
        """Write as much of the input as the command takes now. One that has closed it gets no more."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            self._unwritten = self._unwritten[os.write(stdin.fileno(), self._unwritten[:_PIECE]) :]
        except BrokenPipeError:
            self._unwritten = memoryview(b"")
        if not self._unwritten:
            selector.unregister(stdin)
            if self._closes_input:
                stdin.close()

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended. It is left a zombie."""
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, options) is not None

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
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
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
