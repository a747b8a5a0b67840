"""Pilots in virtual time: the real machine of the pilot, with payloads that are a run time and an end."""

from __future__ import annotations

import asyncio
import math
import random
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pilotage import __version__
from pilotage.pilot.enrol import make_config
from pilotage.pilot.enrol_machine import EnrolFailure, EnrolMachine
from pilotage.pilot.events import (
    LEFT,
    SERVER_UNAVAILABLE,
    Action,
    Event,
    ExchangeAnswered,
    ExchangeFailed,
    Key,
    Kill,
    Leave,
    PayloadEnded,
    PilotSuperseded,
    Send,
    Signal,
    Start,
    Tick,
)
from pilotage.pilot.isolation.client import TAG, USERNS
from pilotage.pilot.machine import Machine
from pilotage.pilot.node import NodeResources
from pilotage.twin.idle_takes import IdleTakes
from pilotage.wire.data import StoredFile
from pilotage.wire.pilot import EnrolRequest, EnrolResponse, ExchangeResponse, Finish, Node, OfferedJob
from pilotage.wire.pilot_calls import ENROL, EXCHANGE

PATIENCE = 600.0
"""Seconds for which a pilot without jobs waits for a server that does not answer."""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A message of a pilot got no answer, or a refusal."""

    reason: str
    superseded: bool = False
    refused: bool = False
    """The server has answered: the message will not be accepted later."""
    retry_after: float = 0.0


Reply = Callable[[Any | CallFailed], None]


class Network(Protocol):
    """The way from a pilot to the server."""

    def post(self, path: str, token: str, message: Any, reply: Reply) -> None:
        """Send a message of the wire. `reply` is called once: with the answer, or with the failure."""


@dataclass(frozen=True, slots=True)
class PayloadRun:
    """The course of a payload from its start to its end."""

    seconds: float
    exit_code: int = 0
    files: tuple[StoredFile, ...] = ()
    """Its outputs of a job of a request."""


class Payloads(Protocol):
    """The payloads of a run, and their books."""

    def run_of(self, offer: OfferedJob) -> PayloadRun: ...

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None: ...

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None: ...

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        """The pilot was killed while the payload ran."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The batch job in which a pilot runs."""

    secret: str
    index: int
    batch_id: str
    node: Node
    restarts: int = 0
    start: float = 0.0
    """When the batch system began it, by its clock; 0: not known."""
    end: float = 0.0
    """When the batch system ends it, by the same clock; 0: not known."""
    isolates: bool = True
    """Whether the node lets it isolate payloads."""


@dataclass(slots=True)
class _Running:
    offer: OfferedJob
    end: asyncio.TimerHandle
    began: float


class SimulatedPilot:
    """One process of the pilot, from its start to its exit."""

    def __init__(
        self,
        job: BatchJob,
        network: Network,
        payloads: Payloads,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        exited: Callable[[int], None],
        idle_takes: IdleTakes | None = None,
    ) -> None:
        """`exited`: called once with the exit code, unless the process is killed. `idle_takes`: None: it polls."""
        self.job = job
        self.began = loop.time()
        self.payload = 0.0
        """Core-seconds of payloads that ended with a result."""
        self.killed = 0.0
        """Core-seconds of payloads that were killed."""
        self.enrolled = 0.0
        """When the server accepted it; 0: not yet."""
        self._network, self._payloads, self._loop, self._rng = network, payloads, loop, rng
        self._exited = exited
        self._idle_takes = idle_takes
        self._token = ""
        self._machine: Machine | None = None
        self._running: dict[Key, _Running] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._enrolment = EnrolMachine(PATIENCE, loop.time(), rng)
        self._alive = True
        self._nonce = f"{rng.getrandbits(128):032x}"
        loop.call_soon(self._enrol)

    def running_seconds(self, now: float) -> float:
        """Core-seconds until now of the payloads that run."""
        return sum(
            (now - running.began) * running.offer.payload.processors for running in self._running.values()
        )

    def signal(self, name: str) -> None:
        """A signal of the batch system, as a warning before the end."""
        if self._machine is None:
            self._exit(1)
        else:
            self._handle(Signal(name))

    def kill(self) -> None:
        """End at once: nothing of it is told to anybody."""
        if not self._alive:
            return
        self._alive = False
        self._cancel_timer()
        if self._idle_takes is not None:
            self._idle_takes.forget(self)
        now = self._loop.time()
        for running in self._running.values():
            running.end.cancel()
            seconds = now - running.began
            self.killed += seconds * running.offer.payload.processors
            self._payloads.lost(self, running.offer, now, seconds)
        self._running.clear()

    # Enrolment

    def _enrol(self) -> None:
        if not self._alive:
            return
        job, now = self.job, self._loop.time()
        request = EnrolRequest(
            secret=job.secret,
            index=job.index,
            nonce=self._nonce,
            version=__version__,
            hostname=job.node.hostname,
            batch_id=job.batch_id,
            restarts=job.restarts,
            age=now - self.began,
            clock=now,
        )
        self._network.post(ENROL.path, "", request, self._on_enrolment)

    def _on_enrolment(self, answer: EnrolResponse | CallFailed) -> None:
        if not self._alive:
            return
        now = self._loop.time()
        if isinstance(answer, CallFailed):
            failure = EnrolFailure(answer.reason, retry_after=answer.retry_after)
            retry = None if answer.refused else self._enrolment.on_failure(failure, now, is_cancelled=False)
            if retry is None:
                self._exit(SERVER_UNAVAILABLE)
            else:
                self._loop.call_at(retry.at, self._enrol)
            return
        if answer.leave:
            self._exit(LEFT)
            return
        self._token, self.enrolled = answer.token, now
        isolated = answer.isolation != "none" and self.job.isolates
        node = replace(
            self.job.node,
            isolation=USERNS if isolated else "",
            tags=sorted({*self.job.node.tags, *answer.tags, *((TAG,) if isolated else ())}),
        )
        job = self.job
        options = Namespace(
            batch_start=job.start, batch_end=job.end, idle=None, patience=PATIENCE, cut_off="stay"
        )
        config = make_config(answer, NodeResources(node, ()), options, self.began, self.began)
        self._machine = Machine(config, now, self._rng)
        self._handle(Tick())

    # The loop of the pilot

    def _handle(self, *events: Event) -> None:
        if not self._alive or self._machine is None:
            return
        now = self._loop.time()
        for action in self._machine.handle(now, *events):
            self._execute(action, now)
            if self._has_ended():
                return
        self._plan_tick()

    def _has_ended(self) -> bool:
        """Whether the process is over: an action may have ended it."""
        return not self._alive

    def _plan_tick(self) -> None:
        assert self._machine is not None
        self._cancel_timer()
        self._timer = self._loop.call_at(self._machine.next_at(self._loop.time()), self._handle, Tick())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _execute(self, action: Action, now: float) -> None:
        if isinstance(action, Send):
            if self._idle_takes is not None and action.request.take is not None:
                self._idle_takes.asks(self)
            self._network.post(EXCHANGE.path, self._token, action.request, self._on_answer)
        elif isinstance(action, Start):
            self._start(action.offer, now)
        elif isinstance(action, Kill):
            self._end(action.key, now, Finish(*action.key, failure="killed", message=action.reason))
        elif isinstance(action, Leave):
            self._exit(action.code)

    def _on_answer(self, answer: Any | CallFailed) -> None:
        if not isinstance(answer, CallFailed):
            self._handle(ExchangeAnswered(answer))
            self._wait_for_change(answer)
        elif answer.superseded:
            self._handle(PilotSuperseded(answer.reason))
        else:
            self._handle(ExchangeFailed(answer.reason, answer.retry_after))

    def _wait_for_change(self, answer: ExchangeResponse) -> None:
        """After a take that found nothing, ask again when something has changed."""
        if self._idle_takes is None or not self._alive or self._machine is None:
            return
        timing = self._machine.timing
        if answer.offers:
            self._idle_takes.served(len(answer.offers))
        elif timing.take is None and timing.in_flight is None and timing.empty_takes:
            timing.take_at = math.inf
            self._idle_takes.wait(self)
            self._plan_tick()

    def take_soon(self) -> None:
        """Ask for jobs again now."""
        if self._machine is not None:
            self._machine.timing.take_at = self._loop.time()
            self._handle(Tick())

    def _start(self, offer: OfferedJob, now: float) -> None:
        run, limit = self._payloads.run_of(offer), offer.payload.wall_time
        key = offer.job, offer.epoch
        if 0 < limit < run.seconds:
            finish = Finish(*key, signal=15, failure="limit-wall", message=f"ran longer than {limit:g} s")
            seconds = limit
        else:
            finish, seconds = Finish(*key, exit_code=run.exit_code, files=list(run.files)), run.seconds
        timer = self._loop.call_at(now + seconds, self._on_end, key, finish)
        self._running[key] = _Running(offer, timer, now)
        self._payloads.started(self, offer, now)

    def _on_end(self, key: Key, finish: Finish) -> None:
        self._end(key, self._loop.time(), finish)

    def _end(self, key: Key, now: float, finish: Finish) -> None:
        running = self._running.pop(key, None)
        if running is None:
            return
        running.end.cancel()
        finish.wall = now - running.began
        finish.cpu = finish.wall * running.offer.payload.processors
        if finish.failure == "killed":
            self.killed += finish.cpu
        else:
            self.payload += finish.cpu
        self._payloads.ended(self, running.offer, now, finish)
        # Not now: the machine may be in the middle of its actions.
        self._loop.call_soon(self._handle, PayloadEnded(finish))

    def _exit(self, code: int) -> None:
        if self._alive:
            self.kill()
            self._exited(code)
