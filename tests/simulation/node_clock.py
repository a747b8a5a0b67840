"""The clock and the timers of one pilot: of a node whose clock is wrong, and of a process that may be frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.processes import Outside

MOMENT = 1e-5
"""Seconds by which a callback is late at least: a loop runs it a little early, and then it would be planned again."""


class Planned:
    """A callback of a pilot. It waits for the end of a freeze."""

    def __init__(self, clock: NodeClock, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._clock, self._callback, self._args = clock, callback, args
        self._cancelled = False
        self._is_work = callback.__name__ == "_on_end"
        """The end of a payload, which has stood still too. Other timers are over when the freeze ends."""

    def cancel(self) -> None:
        self._cancelled = True

    def run(self) -> None:
        if self._cancelled:
            return
        if self._clock.is_frozen:
            self._clock.after_freeze(self.run, again_after=self._is_work)
        else:
            self._callback(*self._args)


class NodeClock:
    """The part of a loop that a pilot needs. Its seconds are longer or shorter than true ones, and begin elsewhere."""

    def __init__(self, outside: Outside, ahead: float, rate: float) -> None:
        """`ahead`: seconds of the clock before the true time. `rate`: its seconds in a true one."""
        self._outside, self._rate = outside, rate
        self._begin = outside.time()
        self._own_begin = self._begin + ahead
        self.frozen_until = 0.0

    def time(self) -> float:
        return self._own_begin + (self._outside.time() - self._begin) * self._rate

    @property
    def is_frozen(self) -> bool:
        return self._outside.time() + MOMENT < self.frozen_until

    def after_freeze(self, call: Callable[[], None], *, again_after: bool) -> None:
        """Call when the freeze is over; `again_after`: as long after it as it still lasts."""
        rest = self.frozen_until - self._outside.time() if again_after else 0.0
        self._outside.call_at(self.frozen_until + rest, call)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Planned:
        planned = Planned(self, callback, args)
        self._outside.call_soon(planned.run)
        return planned

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Planned:
        planned = Planned(self, callback, args)
        self._outside.call_at(self._begin + (when - self._own_begin) / self._rate + MOMENT, planned.run)
        return planned
