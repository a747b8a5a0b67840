"""The main loop of the pilot: passes events to the machine and executes the actions that it returns.

One thread runs the loop. It sleeps until a signal, the end of a child process, a finished background task, or a
deadline wakes it.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
from typing import Any, Callable, List, Mapping, Optional

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse
from pilotage.wire.pilot_calls import EXCHANGE

from .disk import WorkDisk
from .events import (
    Action,
    Event,
    ExchangeAnswered,
    ExchangeFailed,
    Follow,
    Kill,
    Leave,
    LogMessage,
    PilotSuperseded,
    Send,
    Signal,
    Start,
    Tick,
)
from .isolation.client import Isolation
from .log import log, log_tail
from .log_streaming import LogStreamer
from .machine import Machine
from .node import NodeResources
from .payload_runner import PayloadRunner
from .pilot_config import PilotConfig
from .start_log import StartLog
from .system import LEAVE_SIGNALS, clock
from .thread_pool import ThreadPool
from .transport import RequestRefused, ServerConnection
from .use_watch import UseWatch

_MAX_SLEEP = 5.0
_BACKGROUND_THREADS = 4


class WakeUp:
    """A pipe that wakes the loop, and the names of the signals received since the last turn."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.signals: List[str] = []

    def install(self) -> None:
        """Record signals from now on, and wake the loop when a child process ends."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in LEAVE_SIGNALS:
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, LEAVE_SIGNALS)

    def _note(self, number: int, frame: Any) -> None:
        self.signals.append(signal.Signals(number).name)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"\0")

    def sleep(self, seconds: float) -> None:
        if select.select([self.read_end], [], [], max(0.0, seconds))[0]:
            with contextlib.suppress(BlockingIOError):
                while len(os.read(self.read_end, 4096)) == 4096:
                    pass


class Loop:
    """Connects the machine with the server, the payloads and the background threads."""

    def __init__(
        self,
        config: PilotConfig,
        resources: NodeResources,
        connect: Callable[[], ServerConnection],
        wake_up: WakeUp,
        folder: str,
        environment: Mapping[str, str],
        log_facts: Mapping[str, str],
        isolation: Optional[Isolation] = None,
    ) -> None:
        self._wake_up = wake_up
        self._starts = StartLog(log_facts)
        self._sends_log = config.send_log
        self._exchanges = ThreadPool(connect, wake_up.wake)
        background = ThreadPool(connect, wake_up.wake, _BACKGROUND_THREADS)
        self._runner = PayloadRunner(
            folder,
            resources.cores,
            config.cpu_power,
            environment,
            background,
            clock,
            config.max_output,
            isolation,
            config.end - config.margin,
        )
        self._background = background
        self._disk = WorkDisk(folder, background, clock)
        self._uses = UseWatch(config.heartbeat, background, clock)
        self._streamer = LogStreamer(background, clock)
        rng = random.Random()  # noqa: S311 (jitter)
        self._machine = Machine(config, clock(), rng)
        self._events: List[Event] = [Tick()]
        self._exit_code: Optional[int] = None

    def run(self) -> int:
        """Run until the machine decides to leave; returns the exit code."""
        runner = self._runner
        while True:
            self._events += [Signal(name) for name in self._pop_signals()]
            self._exchanges.run_callbacks()
            self._background.run_callbacks()
            runner.reap()
            runner.enforce_limits()
            self._streamer.send(runner.running)
            self._uses.measure(runner.running, self._machine.timing.due_at)
            self._starts.write_due(clock())
            events, runner.events = self._events + runner.events, []
            self._events = []
            events += self._disk.measure(runner.running, events)
            for action in self._machine.handle(clock(), *(events or (Tick(),))):
                self._execute(action)
            if self._exit_code is not None:
                self._starts.write()
                runner.kill_all()
                return self._exit_code
            if not runner.events:
                now = clock()
                next_at = min(
                    self._machine.next_at(now), runner.next_at(), self._streamer.next_at, self._starts.next_at
                )
                self._wake_up.sleep(min(next_at - now, _MAX_SLEEP))

    def _pop_signals(self) -> List[str]:
        names = list(self._wake_up.signals)
        del self._wake_up.signals[: len(names)]
        return names

    def _execute(self, action: Action) -> None:
        if isinstance(action, Send):
            self._send_exchange(action.request)
        elif isinstance(action, Start):
            self._starts.add(action.offer, clock())
            self._runner.start(action.offer)
        elif isinstance(action, Kill):
            log("killing payload", job=action.key[0], epoch=action.key[1], reason=action.reason)
            self._runner.kill(
                action.key, action.reason, keep_streams=action.keep_streams, deliver_tail=action.deliver_tail
            )
        elif isinstance(action, Follow):
            self._streamer.follow(action.jobs)
        elif isinstance(action, LogMessage):
            log(action.text)
        elif isinstance(action, Leave):
            log("pilot leaves", reason=action.reason, exit_code=action.code)
            self._exit_code = action.code

    def _send_exchange(self, request: ExchangeRequest) -> None:
        if request.leaving:
            self._starts.write()
        if request.leaving and self._sends_log:
            request.log = log_tail()
        request.uses = self._uses.take()

        def exchange(connection: ServerConnection) -> ExchangeResponse:
            return connection.post(EXCHANGE.path, request, ExchangeResponse)

        self._exchanges.submit(exchange, self._on_exchange_done)

    def _on_exchange_done(self, response: Any, error: Optional[BaseException]) -> None:
        if error is None:
            self._events.append(ExchangeAnswered(response))
        elif isinstance(error, RequestRefused) and error.superseded:
            self._events.append(PilotSuperseded(str(error)))
        else:
            self._events.append(ExchangeFailed(str(error) or repr(error), getattr(error, "retry_after", 0.0)))
