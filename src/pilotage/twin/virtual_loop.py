"""An event loop in virtual time. Coroutines, timers and time-outs run unchanged, and no second is waited for.

The clock of the loop stands still while callbacks run. When none is ready, it jumps to the next timer. Blocking calls
run inline. So there is a single thread, and the order of events depends on nothing outside of the process.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Result = TypeVar("Result")


class Standstill(RuntimeError):
    """No callback is ready and no timer is set: the loop would wait for ever."""


class _VirtualSelector(selectors.BaseSelector):
    """A selector without files. A wait moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Standstill("nothing is left that could happen in virtual time")
        if timeout > 0:
            self.now += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        # The loop registers the socket with which other threads wake it. There are none.
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """The clock starts at `begin`, in seconds since 1970."""

    def __init__(self, begin: float) -> None:
        self._virtual = _VirtualSelector()
        self._virtual.now = begin
        super().__init__(self._virtual)
        # Timers within the resolution of the clock run together; in virtual time each instant is exact.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, call: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future
