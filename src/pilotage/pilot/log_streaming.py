"""Streams the standard output and error of followed jobs to the server while they run."""

from __future__ import annotations

import math
import os
from typing import Callable, Dict, Optional, Set, Tuple

from .events import Key
from .payload import RunningPayload
from .thread_pool import ThreadPool
from .transport import Connection

PERIOD = 1.0
_MAX = 1 << 16
"""Bytes per message."""


class LogStreamer:
    """Used by the loop's thread only. A lost message is sent again, since the offset advances on success only."""

    def __init__(self, background: ThreadPool, clock: Callable[[], float]) -> None:
        self._background = background
        self._clock = clock
        self._jobs: Set[int] = set()
        self._under_way: Set[Tuple[Key, str]] = set()
        self.next_at = math.inf

    def follow(self, jobs: Tuple[int, ...]) -> None:
        self._jobs = set(jobs)
        self.next_at = self._clock() if jobs else math.inf

    def send(self, running: Dict[Key, RunningPayload]) -> None:
        """Send new output, if a message is due."""
        if self._clock() < self.next_at:
            return
        self.next_at = self._clock() + PERIOD
        for payload in running.values():
            if payload.key[0] in self._jobs:
                for stream in ("stdout", "stderr"):
                    self._send_stream(payload, stream)

    def _send_stream(self, payload: RunningPayload, stream: str) -> None:
        number, transfer = payload.stream(stream), (payload.key, stream)
        if number is None or transfer in self._under_way:
            return
        offset = payload.tail_offsets[stream]
        data = os.pread(number, _MAX, offset)
        if not data:
            return
        job, epoch = payload.key
        path = f"/v1/pilot/jobs/{job}/tail?stream={stream}&offset={offset}&epoch={epoch}"

        def post(connection: Connection) -> None:
            connection.request("POST", path, data, {"Content-Type": "application/octet-stream"})

        def posted(result: object, error: Optional[BaseException]) -> None:
            self._under_way.discard(transfer)
            if error is None:
                payload.tail_offsets[stream] = offset + len(data)

        self._under_way.add(transfer)
        self._background.submit(post, posted)
