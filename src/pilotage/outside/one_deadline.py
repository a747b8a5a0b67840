"""One deadline for a whole call to an outside service. A socket's timeout alone never ends an answer that drips."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def longer_than(seconds: float) -> str:
    return f"the whole answer took longer than {seconds:g} s"


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
            raise TimeoutError(longer_than(seconds)) from error
        raise
    finally:
        timer.cancel()
