"""The end of the interpreter: it waits for all calls that were accepted, as it does for Python's own executors."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import thread  # noqa: F401  # it registers its own end, which must come after ours
from typing import Protocol
from weakref import WeakSet

TOLD_AFTER = 3.0
"""Seconds of waiting at the end, after which a line says so."""


class OpenCalls(Protocol):
    """Calls of one executor that may not have ended."""

    def end(self) -> None:
        """Take no more calls, since the interpreter ends."""

    def left(self) -> int:
        """How many calls have no outcome."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have an outcome, and say whether they do."""


_open: WeakSet[OpenCalls] = WeakSet()
_ended = False


def watch(calls: OpenCalls) -> None:
    """Let the end of the interpreter wait for these calls. Raises RuntimeError if it has come."""
    if _ended:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")
    _open.add(calls)


def _wait_for_calls() -> None:
    """Python prints a KeyboardInterrupt in here, and goes on to end."""
    global _ended
    _ended = True
    waiting = list(_open)
    for calls in waiting:
        calls.end()
    told_at = time.monotonic() + TOLD_AFTER
    for calls in waiting:
        if not calls.join(max(0.0, told_at - time.monotonic())):
            _tell(sum(each.left() for each in waiting))
            break
    for calls in waiting:
        calls.join()


def _tell(left: int) -> None:
    number = "a call has" if left == 1 else f"{left} calls have"
    print(
        f"pilotage: {number} not ended, and the program waits. Ctrl-C ends it now: calls that wait here are lost, "
        "and jobs that were sent go on.",
        file=sys.stderr,
        flush=True,
    )


# As Python's own executors do: `atexit` would come after the wait for the threads that work on the calls.
threading._register_atexit(_wait_for_calls)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_open.clear)  # the threads are in the parent alone
