"""One deadline for a whole call to an outside service. A socket's timeout alone never ends an answer that drips."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx


class Deadline:
    """Cuts the sockets of a call when its time is over. The call's own error then says that the connection ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_over = False
        self._lock = threading.Lock()
        self._sockets: list[Callable[[], socket.socket | None]] = []

    def watch(self, current: Callable[[], socket.socket | None]) -> None:
        """Cut this socket too. `current`: the socket when the time is over; None: there is none."""
        with self._lock:
            self._sockets.append(current)
            if self.is_over:
                _cut(current())

    def on_event(self, event: str, facts: Mapping[str, Any]) -> None:
        """For the extension `trace` of a request of httpx: watches its connection."""
        if event == "connection.connect_tcp.complete":
            stream = facts["return_value"]
            self.watch(lambda: stream.get_extra_info("socket"))

    def end(self) -> None:
        with self._lock:
            self.is_over = True
            for current in self._sockets:
                _cut(current())


class TookTooLong(httpx.ReadTimeout):
    """The parts of an answer came in time, and the whole did not."""


def _words(seconds: float) -> str:
    return f"the whole answer took longer than {seconds:g} s"


class CallDeadlines:
    """One deadline for each whole call of a client of httpx that keeps its connections between calls."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._of_thread = threading.local()

    @contextmanager
    def call(self) -> Iterator[None]:
        """The calls of this thread in the block raise `TookTooLong` when the time is over."""
        self._of_thread.end = time.monotonic() + self._seconds
        yield

    def on_request(self, request: httpx.Request) -> None:
        """For the hooks of the client: bounds each connection that it makes."""
        request.extensions = {**request.extensions, "trace": self._on_event}

    def _on_event(self, event: str, facts: Mapping[str, Any]) -> None:
        if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        stream = facts["return_value"]
        read = stream.read

        def read_in_time(most: int, timeout: float | None = None) -> bytes:
            end = self._of_thread.end
            left = max(0.001, end - time.monotonic())
            try:
                piece: bytes = read(most, left if timeout is None else min(timeout, left))
            except Exception as error:
                if time.monotonic() >= end:
                    raise TookTooLong(_words(self._seconds)) from error
                raise
            if time.monotonic() >= end and piece:
                raise TookTooLong(_words(self._seconds))
            return piece

        stream.read = read_in_time


def _cut(given: socket.socket | None) -> None:
    if given is None:
        return
    try:
        # Not the method of a TLS socket, which would forget its encryption under a reader.
        socket.socket.shutdown(given, socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already


@contextmanager
def one_deadline(seconds: float) -> Iterator[Deadline]:
    """The deadline of the calls in the block. Raises TimeoutError in the place of their errors after it."""
    deadline = Deadline(seconds)
    timer = threading.Timer(seconds, deadline.end)
    timer.daemon = True
    timer.start()
    try:
        yield deadline
    except Exception as error:
        if deadline.is_over:
            raise TimeoutError(_words(seconds)) from error
        raise
    finally:
        timer.cancel()
