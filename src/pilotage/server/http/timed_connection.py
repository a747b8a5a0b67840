"""The time that a connection has: a deadline for each phase, a lowest rate for bodies and for reading answers."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import cast

from uvicorn.protocols.http.flow_control import FlowControl

from pilotage.core.errors import TooSlow
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits


class Phase(Enum):
    """What a connection waits for."""

    IDLE = "the next request"
    HEAD = "the rest of a header"
    BODY = "the rest of a body"
    ANSWER = "our answer"
    LINGER = "the rest of a refused request, which is thrown away"
    CLOSING = "the peer, to read what was written"


class TimedConnection(asyncio.Protocol):
    """A connection that ends when its peer is too slow, or when another one needs its place."""

    def __init__(
        self, admission: Admission, limits: ConnectionLimits, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._admission = admission
        self._limits = limits
        self._loop = loop
        self._transport: asyncio.Transport
        self._flow: FlowControl
        self._timer: asyncio.TimerHandle | None = None
        self.address = ""
        self._trusted = False
        """A valid token came over it."""
        self._phase = Phase.IDLE
        self._deadline = 0.0
        """Of this phase, by the loop's clock."""
        self._written = 0
        """Bytes given to the transport."""
        self._taken = -1
        """How many of them had gone at the last look; -1: all."""
        self._size = 0
        """Bytes of the present body so far."""
        self._mark = 0
        """Of `_size`, when the present window of time began; less than 0: reading was paused in it."""

    def _refuse(self, error: BaseException) -> None:
        """Answer with an error, and end."""
        raise NotImplementedError

    def _open(self, transport: asyncio.BaseTransport) -> bool:
        """Begin; whether there is a place for it."""
        self._transport = cast("asyncio.Transport", transport)
        self._flow = FlowControl(self._transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if not self._admission.join(self):
            return False
        self._deadline = self._loop.time() + self._limits.first_byte
        self._timer = self._loop.call_later(self._limits.tick, self._look_at_time)
        return True

    def _lost(self) -> None:
        """The transport has ended."""
        self._admission.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def waits(self) -> bool:
        return self._phase is Phase.IDLE

    def evict(self) -> None:
        self._transport.abort()

    def trust(self) -> None:
        """The peer has shown a valid token."""
        if not self._trusted:
            self._trusted = True
            self._admission.trust(self)

    def _close(self) -> None:
        self._enter(Phase.CLOSING, self._limits.window)
        self._transport.close()

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._phase in (Phase.LINGER, Phase.CLOSING) or self._transport.is_closing()

    def _enter(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline = self._loop.time() + seconds

    def _pause_body(self) -> None:
        self._flow.pause_reading()
        self._mark = -1

    def _look_at_time(self) -> None:
        left = self._deadline - self._loop.time()
        if left <= 0:
            self._out_of_time()
            left = self._deadline - self._loop.time()
        if self._timer is not None:
            self._timer = self._loop.call_later(min(max(left, 0.01), self._limits.tick), self._look_at_time)

    def _out_of_time(self) -> None:
        self._deadline = self._loop.time() + self._limits.window
        waiting = self._transport.get_write_buffer_size()
        if self._phase is Phase.LINGER:
            self._close()
        elif waiting:
            self._look_at_reader(self._written - waiting)
        elif self._phase is Phase.BODY:
            self._look_at_body()
        elif self._phase is not Phase.ANSWER:
            self._close()
        if not waiting:
            self._taken = -1

    def _look_at_body(self) -> None:
        limits, before = self._limits, self._mark
        paused = before < 0 or self._flow.read_paused
        self._mark = -1 if self._flow.read_paused else self._size
        if not paused and (not self._trusted or self._size - before < limits.rate * limits.window):
            self._refuse(TooSlow("the body of the request comes too slowly", hint="send it again"))

    def _look_at_reader(self, taken: int) -> None:
        """Cut off a peer that hardly reads what is answered."""
        before, self._taken = self._taken, taken
        if before >= 0 and taken - before < self._limits.rate * self._limits.window:
            self._transport.abort()
