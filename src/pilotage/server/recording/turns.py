"""Threads that run in turn with the decisions, so that their order can be repeated.

Such a thread runs only while the event loop waits for it. At a call that leaves the process it gives the turn back, and
gets it again when the result is handed in, as an input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from pilotage.server.recording.lines import CallOutcome


class Abandoned(Exception):
    """The decisions have ended, and no outcome will come."""


class ThreadCall:
    """One blocking call."""

    def __init__(self, call: Callable[[], Any], ended: Callable[[ThreadCall], None]) -> None:
        """`ended` is called in the thread of the event loop."""
        self._call = call
        self._ended = ended
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._outcome: CallOutcome | None = None
        self._done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self, outcome: CallOutcome | None = None) -> None:
        """Called by the event loop: let the thread run to its end, or to its next call that leaves the process."""
        self._outcome = outcome
        self._mine.release()
        self._others.acquire()
        if self._done:
            self._ended(self)

    def leave(self, work: Callable[[], object]) -> CallOutcome:
        """Called by the thread: give the turn back, do `work` beside the decisions, and wait for the outcome."""
        self._others.release()
        work()
        self._mine.acquire()
        if self._outcome is None:
            raise Abandoned
        return self._outcome

    def run(self) -> None:
        """Called by the thread."""
        self._mine.acquire()
        _present.call = self
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            self._done = True
            _present.call = None
            self._others.release()


class _Present(threading.local):
    call: ThreadCall | None = None


_present = _Present()


def present_call() -> ThreadCall | None:
    """The call that runs in this thread; None: it is the thread of the event loop."""
    return _present.call


class TurnThread:
    """A thread that makes one call after the other."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[ThreadCall] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def start(self, call: ThreadCall) -> None:
        self._calls.put(call)

    def _run(self) -> None:
        while True:
            self._calls.get().run()
