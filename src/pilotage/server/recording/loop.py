"""The event loop of decisions that can be replayed: timers, and inputs that come only when nothing else is to do.

The clock stands still while callbacks run. When none is ready, the source of inputs chooses: the earliest timer, or
inputs at an instant before it. So the order of all events follows from the inputs and their instants.
Blocking calls of the default executor run inline. Calls of other executors run in turn with the loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, TypeVar

from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.recording.turns import ThreadCall, TurnThread

Result = TypeVar("Result")


class InputSource(Protocol):
    """Chooses the next event when no callback is ready."""

    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        """The new instant, and calls that hand inputs in. `due`: the earliest timer; without inputs it is next."""

    def on_signal(self, signal: int, callback: Callable[[], object]) -> None:
        """Call `callback` at a signal to the process, which is an input."""


class _Selector(selectors.BaseSelector):
    """A selector without files. A wait moves the clock."""

    def __init__(self, now: float, source: InputSource) -> None:
        self.now = now
        self.source = source
        self.ready: Callable[[Callable[[], object]], object] = lambda call: call()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return []
        due = None if timeout is None else self.now + timeout
        self.now, inputs = self.source.next_inputs(self.now, due)
        for hand_in in inputs:
            self.ready(hand_in)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        # The loop registers the socket with which other threads wake it. There are none.
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}


class _Lane:
    """The calls of one executor: one after the other in one thread, or each in a thread of its own."""

    def __init__(self, executor: Executor) -> None:
        self._thread = None if isinstance(executor, DaemonThreads) else TurnThread("turns")
        self._waiting: deque[ThreadCall] = deque()
        self._busy = False

    def add(self, call: ThreadCall) -> None:
        if self._thread is None:
            TurnThread("turn").start(call)
            call.go_on()
            return
        self._waiting.append(call)
        self._begin_next(self._thread)

    def _begin_next(self, thread: TurnThread) -> None:
        while self._waiting and not self._busy:
            self._busy = True
            call = self._waiting.popleft()
            thread.start(call)
            call.go_on()

    def ended(self, future: asyncio.Future[Any], call: ThreadCall) -> None:
        self._busy = False
        if not future.done():
            if call.error is None:
                future.set_result(call.result)
            else:
                future.set_exception(call.error)
        if self._thread is not None:
            self._begin_next(self._thread)


class DecisionLoop(asyncio.SelectorEventLoop):
    """The clock starts at `begin`, in seconds since 1970."""

    def __init__(self, begin: float, source: InputSource, *, turns: bool = True) -> None:
        """`turns`: calls of executors may leave the process. Otherwise they run inline, like all others."""
        self._decisions = _Selector(begin, source)
        super().__init__(self._decisions)
        self._decisions.ready = self.call_soon
        self._turns = turns
        self._lanes: dict[Executor, _Lane] = {}
        # Timers within the resolution of the clock run together; each instant here is exact.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._decisions.now

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self._decisions.source.on_signal(sig, partial(callback, *args))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, call: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()
        if executor is not None and self._turns:
            lane = self._lanes.setdefault(executor, _Lane(executor))
            lane.add(ThreadCall(partial(call, *args), partial(lane.ended, future)))
            return future
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future
