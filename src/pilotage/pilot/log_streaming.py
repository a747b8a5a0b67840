"""Streams the standard output and error of followed jobs to the server while they run.

Of a payload that is stopped because its pilot leaves, the end of both is sent.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from pilotage.wire.pilot_calls import STORE_TAIL

from .events import Key
from .log import log
from .payload import RunningPayload
from .standard_streams import MAX_END, STREAMS
from .thread_pool import ThreadPool, retry_until_available
from .transport import RequestRefused, ServerConnection, ServerUnavailable

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
                for stream in STREAMS:
                    self._send_stream(payload, stream)

    def _send_stream(self, payload: RunningPayload, stream: str) -> None:
        place, transfer = payload.streams.place(stream), (payload.key, stream)
        if place is None or transfer in self._under_way:
            return
        offset = payload.tail_offsets[stream]
        data = payload.streams.read(place, _MAX, offset)
        if not data:
            return

        def post(connection: ServerConnection) -> None:
            _post(connection, payload.key, Tail(stream, offset, data))

        def posted(result: object, error: Optional[BaseException]) -> None:
            self._under_way.discard(transfer)
            if error is None:
                payload.tail_offsets[stream] = offset + len(data)

        self._under_way.add(transfer)
        self._background.submit(post, posted)


class Tail(NamedTuple):
    """A part of a stream, and its place in the stream as the server has it."""

    stream: str
    offset: int
    data: bytes


def unsent_tails(payload: RunningPayload) -> List[Tail]:
    """The ends of both streams that the server does not have. A line at the begin tells how much is left out."""
    tails = []
    for stream in STREAMS:
        place, offset = payload.streams.place(stream), payload.tail_offsets[stream]
        if place is None:
            continue
        size = payload.streams.size(place)
        begin = max(offset, size - MAX_END)
        note = b"[%d bytes are left out here]\n" % (begin - offset) if begin > offset else b""
        if size > begin:
            tails.append(Tail(stream, offset, note + payload.streams.read(place, size - begin, begin)))
    return tails


def send_tails(
    connection: ServerConnection, key: Key, tails: List[Tail], is_cancelled: Callable[[], bool]
) -> None:
    """Send the ends of streams. An end that the server does not take is logged."""
    for tail in tails:
        try:
            retry_until_available(partial(_post, connection, key, tail), is_cancelled)
        except (ServerUnavailable, RequestRefused) as error:
            log("cannot send the end of the output", job=key[0], stream=tail.stream, reason=str(error))


def _post(connection: ServerConnection, key: Key, tail: Tail) -> None:
    job, epoch = key
    path = f"{STORE_TAIL.address(job=job)}?stream={tail.stream}&offset={tail.offset}&epoch={epoch}"
    connection.request("POST", path, tail.data, {"Content-Type": "application/octet-stream"})
