"""Threads for tasks that would block the loop: exchanges, downloads, uploads, and removals.

Threads start on demand. A finished task writes a byte to the wake-up pipe, and the loop then calls its callback.
Exchanges have a thread of their own, so that a slow upload never delays a heartbeat.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from typing import Any, Callable, Deque, Optional, Tuple, TypeVar

from .system import LEAVE_SIGNALS
from .transport import ServerConnection, ServerUnavailable

T = TypeVar("T")
Work = Callable[[ServerConnection], Any]
Done = Callable[[Any, Optional[BaseException]], None]

_SIGNALS = (signal.SIGCHLD, *LEAVE_SIGNALS)
_RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class ThreadPool:
    """Runs tasks in up to `threads` threads, each with its own connection. The loop calls `done(result, error)`."""

    def __init__(
        self, connect: Callable[[], ServerConnection], wake: Callable[[], None], threads: int = 1
    ) -> None:
        self._connect = connect
        self._wake = wake
        self._max_threads = threads
        self._running = 0
        self._busy = 0
        self._queue: "queue.SimpleQueue[Tuple[Work, Done]]" = queue.SimpleQueue()
        self._arrived: Deque[Tuple[Done, Any, Optional[BaseException]]] = Deque()

    def submit(self, work: Work, done: Done) -> None:
        self._queue.put((work, done))
        self._busy += 1
        if self._running < min(self._max_threads, self._busy):
            self._running += 1
            threading.Thread(target=self._serve, daemon=True).start()

    def run_callbacks(self) -> None:
        """Call the callbacks of finished tasks. For the loop's thread."""
        while self._arrived:
            done, result, error = self._arrived.popleft()
            self._busy -= 1
            done(result, error)

    def _serve(self) -> None:
        # The loop's thread takes all signals: one that woke this thread too would cost both a turn for each payload.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        connection = self._connect()
        while True:
            work, done = self._queue.get()
            result: Any = None
            error: Optional[BaseException] = None
            try:
                result = work(connection)
            except BaseException as caught:
                error = caught
            self._arrived.append((done, result, error))
            self._wake()


def retry_until_available(work: Callable[[], T], is_cancelled: Callable[[], bool]) -> T:
    """Repeat `work` while the server is unavailable. Raises the last ServerUnavailable once `is_cancelled` is true."""
    failures = 0
    while True:
        try:
            return work()
        except ServerUnavailable as error:
            pause = max(_RETRY_PAUSES[min(failures, len(_RETRY_PAUSES) - 1)], error.retry_after)
            failures += 1
            until = time.monotonic() + pause
            while time.monotonic() < until:
                if is_cancelled():
                    raise
                time.sleep(min(0.1, pause))
