"""One deadline for each whole call of a client of httpx, which keeps its connections between calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from pilotage.outside.one_deadline import longer_than


class TookTooLong(httpx.ReadTimeout):
    """The parts of an answer came in time, and the whole did not."""


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
                    raise TookTooLong(longer_than(self._seconds)) from error
                raise
            if time.monotonic() >= end and piece:
                raise TookTooLong(longer_than(self._seconds))
            return piece

        stream.read = read_in_time
