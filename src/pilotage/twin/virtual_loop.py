"""An event loop in virtual time. Coroutines, timers and time-outs run unchanged, and no second is waited for.

The clock of the loop stands still while callbacks run. When none is ready, it jumps to the next timer. Blocking calls
run inline. So there is a single thread, and the order of events depends on nothing outside of the process.
"""

from __future__ import annotations

from pilotage.server.recording.loop import DecisionLoop, InputSource


class Standstill(RuntimeError):
    """No callback is ready and no timer is set: the loop would wait for ever."""


class TimersOnly:
    """Implements `InputSource`."""

    def next_inputs(self, now: float, due: float | None) -> tuple[float, tuple[()]]:
        if due is None:
            raise Standstill("nothing is left that could happen in virtual time")
        return due, ()

    def on_signal(self, signal: int, callback: object) -> None:
        """No process has this loop for itself."""


class VirtualLoop(DecisionLoop):
    """The clock starts at `begin`, in seconds since 1970."""

    def __init__(self, begin: float, source: InputSource | None = None) -> None:
        super().__init__(begin, source or TimersOnly(), turns=False)

    def skip_to(self, instant: float) -> None:
        """Move the clock ahead. Timers that are due by then fire at that instant, each of them once."""
        self._decisions.now = max(self._decisions.now, instant)
