"""A clock that moves when it is told, and the callbacks that are due on the way."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class VirtualTimer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class VirtualTimers:
    """Callbacks of one instant are called in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, VirtualTimer]] = []
        self._number = 0

    def clock(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(call)
        self._number += 1
        heappush(self._heap, (max(when, self.now), self._number, timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        self.run(self.now + seconds)

    def run(self, until: float = inf) -> None:
        """Call what is due until then; without end: until nothing is left."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, timer = heappop(self._heap)
            if timer.call is not None:
                timer.call()
        if until < inf:
            self.now = until
