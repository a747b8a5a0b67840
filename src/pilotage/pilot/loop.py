"""The pilot proper: carries events to the machine and does what it asks for. One thread, one wake-up pipe."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
from typing import Any, Callable, List, Mapping, Optional

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, OfferedJob

from .events import (
    Action,
    Answered,
    AttemptSuperseded,
    Event,
    Follow,
    Kill,
    Leave,
    Note,
    Send,
    Signal,
    Start,
    Tick,
    Unanswered,
)
from .log import log
from .log_streaming import LogStreamer
from .machine import Machine
from .node import Found
from .payload_runner import PayloadRunner
from .pilot_config import PilotConfig
from .system import LEAVE_SIGNALS, clock
from .thread_pool import ThreadPool
from .transport import Connection, RequestRefused

_LONGEST_NAP = 5.0
_UPLOADS = 4


class WakeUp:
    """A pipe that signals and threads write to, and the signals that came."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.signals: List[str] = []

    def install(self) -> None:
        """From now on signals are taken note of, and the end of a child wakes the loop."""
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
    def __init__(
        self,
        terms: PilotConfig,
        found: Found,
        new_line: Callable[[], Connection],
        wake_up: WakeUp,
        folder: str,
        environment: Mapping[str, str],
        facts: Mapping[str, str],
    ) -> None:
        self._wake_up = wake_up
        self._facts = dict(facts)
        self._exchanges = ThreadPool(new_line, wake_up.wake)
        errands = ThreadPool(new_line, wake_up.wake, _UPLOADS)
        self._crew = PayloadRunner(
            folder, found.cores, terms.cpu_power, environment, errands, clock, terms.most_output
        )
        self._errands = errands
        self._tails = LogStreamer(errands, clock)
        rng = random.Random()  # noqa: S311 (jitter)
        self._machine = Machine(terms, clock(), rng)
        self._events: List[Event] = [Tick()]
        self._code: Optional[int] = None

    def run(self) -> int:
        """Until the machine says to leave; the exit code."""
        crew = self._crew
        while True:
            self._events += [Signal(name) for name in self._take_signals()]
            self._exchanges.deliver()
            self._errands.deliver()
            crew.reap()
            crew.watch()
            self._tails.send(crew.running)
            events, crew.events = self._events + crew.events, []
            self._events = []
            for action in self._machine.handle(clock(), *(events or (Tick(),))):
                self._do(action)
            if self._code is not None:
                crew.end_all()
                return self._code
            if not crew.events:
                now = clock()
                next_at = min(self._machine.next_at(now), crew.next_at(), self._tails.next_at)
                self._wake_up.sleep(min(next_at - now, _LONGEST_NAP))

    def _take_signals(self) -> List[str]:
        names = list(self._wake_up.signals)
        del self._wake_up.signals[: len(names)]
        return names

    def _do(self, action: Action) -> None:
        if isinstance(action, Send):
            self._send(action.request)
        elif isinstance(action, Start):
            self._tell_start(action.offer)
            self._crew.start(action.offer)
        elif isinstance(action, Kill):
            log("ending payload", job=action.key[0], epoch=action.key[1], reason=action.reason)
            self._crew.kill(action.key, action.reason, keep_streams=action.keep_streams)
        elif isinstance(action, Follow):
            self._tails.follow(action.jobs)
        elif isinstance(action, Note):
            log(action.text)
        elif isinstance(action, Leave):
            log("leaving", reason=action.reason, code=action.code)
            self._code = action.code

    def _tell_start(self, offer: OfferedJob) -> None:
        """The line by which a site finds out whose payload ran where and when."""
        log(
            "payload",
            job=offer.job,
            epoch=offer.epoch,
            owner=offer.payload.owner,
            group=offer.payload.group,
            **self._facts,
        )

    def _send(self, request: ExchangeRequest) -> None:
        def exchange(line: Connection) -> ExchangeResponse:
            return line.post("/v1/pilot/exchange", request, ExchangeResponse)

        self._exchanges.submit(exchange, self._answered)

    def _answered(self, response: Any, error: Optional[BaseException]) -> None:
        if error is None:
            self._events.append(Answered(response))
        elif isinstance(error, RequestRefused) and error.superseded:
            self._events.append(AttemptSuperseded(str(error)))
        else:
            self._events.append(Unanswered(str(error) or repr(error), getattr(error, "retry_after", 0.0)))


def started_at() -> float:
    """When this process's program was started, on the machine's clock."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b") ")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
