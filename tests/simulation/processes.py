"""Processes in one event loop. A process that has died does nothing any more, whatever it had planned.

All that a process plans (callbacks, timers, steps of its tasks) carries the process in its context. The loop drops what
belongs to a dead one. Whoever takes effects outside of the loop (a connection, a batch system) asks `alive`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

from pilotage.server.daemon_threads import DaemonThreads
from pilotage.twin.virtual_loop import TimersOnly, VirtualLoop

Result = TypeVar("Result")

_process: ContextVar[Process | None] = ContextVar("process", default=None)

CALL_SECONDS = 2.0
"""Seconds of a command of a batch system, on average: there, and back."""


class ProcessDied(BaseException):
    """The process has died in the middle of a call."""


class Process:
    """A process that can die at any instant."""

    def __init__(self, name: str, loop: SimulationLoop | None = None) -> None:
        """`loop`: of one that may be frozen."""
        self.name = name
        self._loop = loop
        self.alive = True
        self.frozen_until = 0.0
        """It does nothing until then, and then all that it has planned meanwhile."""
        self._at_death: dict[Callable[[], None], None] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = 100

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is begun within belongs to the process."""
        token = _process.set(self)
        try:
            yield
        finally:
            _process.reset(token)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback of the process, unless it has died. Nobody hears of an error in a process that dies."""
        self.run_planned(copy_context(), callback, *args)

    def run_planned(self, context: Context, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback that the loop has called in its context. All steps of a task have one, also after a freeze."""
        if not self.alive:
            return
        if self._loop is not None and self._loop.time() < self.frozen_until:
            self._loop.call_at(self.frozen_until, callback, *args, context=context)
            return
        try:
            callback(*args)
        except BaseException:
            if self.alive:
                raise

    def at_death(self, call: Callable[[], None]) -> None:
        self._at_death[call] = None

    def forget(self, call: Callable[[], None]) -> None:
        self._at_death.pop(call, None)

    def die(self) -> None:
        """Die at once. May be called in the middle of a callback of the process, which should then raise."""
        if not self.alive:
            return
        self.alive = False
        for call in list(self._at_death):
            call()
        self._at_death.clear()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Keep a task from the garbage collector, which would run its `finally` at any instant after a death."""
        self._tasks.append(task)
        if len(self._tasks) > self._most_tasks:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._most_tasks = 2 * len(self._tasks) + 100

    def bury(self) -> None:
        """Close its tasks, when nothing is looked at any more."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            try:
                coroutine.close()
            except BaseException:
                continue
        self._tasks.clear()


class _Instants(TimersOnly):
    """Tells each new instant."""

    call: Callable[[float], None] | None = None

    def next_inputs(self, now: float, due: float | None) -> tuple[float, tuple[()]]:
        instant, inputs = super().next_inputs(now, due)
        if self.call is not None:
            self.call(instant)
        return instant, inputs


class SimulationLoop(VirtualLoop):
    """A virtual loop with processes. Commands of batch systems take seconds, other blocking calls none."""

    def __init__(self, begin: float, rng: Random) -> None:
        self._instants = _Instants()
        super().__init__(begin, self._instants)
        self._rng = rng
        self.outside: Context = copy_context()
        self.set_task_factory(_new_task)

    def at_each_instant(self, call: Callable[[float], None]) -> None:
        """Call with the time whenever that has moved on."""
        self._instants.call = call

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(process.run_planned, context, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, process.run_planned, context, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, call: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        if not isinstance(executor, DaemonThreads):
            return super().run_in_executor(executor, call, *args)
        future: asyncio.Future[Result] = self.create_future()
        rate = 1 / CALL_SECONDS
        back = self._rng.expovariate(rate)
        self.call_later(self._rng.expovariate(rate), self._run_command, future, call, args, back)
        return future

    def _run_command(
        self, future: asyncio.Future[Result], call: Callable[..., Result], args: Any, back: float
    ) -> None:
        result, error = None, None
        try:
            result = call(*args)
        except Exception as caught:
            error = caught
        self.call_later(back, _settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None) -> Any:
    process = _process.get() if context is None else context.get(_process)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    if process is not None:
        process.add(task)
    return task


class Outside:
    """The part of a loop that pilots and batch systems need. Nothing of it belongs to a process."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self.time = loop.time

    def call_soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        return self._loop.call_soon(callback, *args, context=self._loop.outside)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_at(when, callback, *args, context=self._loop.outside)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.call_at(self._loop.time() + delay, callback, *args)
