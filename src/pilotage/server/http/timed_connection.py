"""Time limits of a connection: a deadline for each phase, and minimum rates for bodies and for reading answers."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import cast

from uvicorn.protocols.http.flow_control import FlowControl

from pilotage.core.errors import TooSlow
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits


class Phase(Enum):
    """The phases of a connection, by the event it waits for."""

    IDLE = "the next request"
    HEAD = "the rest of a header"
    BODY = "the rest of a body"
    ANSWER = "the server's answer"
    LINGER = "the rest of a refused request, which is discarded"
    CLOSING = "the peer, to read what was written"


class TimedConnection(asyncio.Protocol):
    """A connection that closes when its peer is too slow, or when it is evicted in favour of another."""

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
        """A request with a valid token was received."""
        self._is_lost = False
        self._phase = Phase.IDLE
        self._deadline = 0.0
        """End of the present phase, by the loop's clock."""
        self._due = 0.0
        """When the timer should run. A later run shows that the server itself stood still."""
        self._written = 0
        """Bytes given to the transport."""
        self._last_sent = -1
        """Bytes of them that had been sent at the last check; -1: all."""
        self._size = 0
        """Bytes of the present body received so far."""
        self._window_size = 0
        """`_size` at the start of the present time window; -1: reading was paused during the window."""

    def _refuse(self, error: BaseException) -> None:
        """Answer with an error, then close."""
        raise NotImplementedError

    def _admit(self, transport: asyncio.BaseTransport) -> bool:
        """Take over the new transport; False if the server has no room for the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._flow = FlowControl(self._transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if not self._admission.join(self):
            return False
        self._deadline = self._loop.time() + self._limits.first_byte
        self._set_timer(self._limits.tick)
        return True

    def _release(self) -> None:
        """Give up the connection's place after its transport has closed."""
        self._is_lost = True
        self._admission.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_idle(self) -> bool:
        return self._phase is Phase.IDLE

    def evict(self) -> None:
        self._transport.abort()

    def trust(self) -> None:
        """Record that the peer has sent a valid token."""
        if not self._trusted:
            self._trusted = True
            self._admission.mark_trusted(self)

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
        self._window_size = -1

    def _set_timer(self, delay: float) -> None:
        self._due = self._loop.time() + delay
        self._timer = self._loop.call_later(delay, self._check_time)

    def _check_time(self) -> None:
        now, tick = self._loop.time(), self._limits.tick
        late = now - self._due
        if late > tick / 4:
            # The server read nothing meanwhile: a peer is not blamed for that.
            self._deadline = max(self._deadline, now + min(late, tick))
        remaining = self._deadline - now
        if remaining <= 0:
            self._on_deadline()
            remaining = self._deadline - self._loop.time()
        if self._timer is not None:
            self._set_timer(min(max(remaining, 0.01), tick))

    def _on_deadline(self) -> None:
        self._deadline = self._loop.time() + self._limits.window
        unsent = self._transport.get_write_buffer_size()
        if self._phase is Phase.LINGER:
            self._close()
        elif unsent:
            self._check_reading_rate(self._written - unsent)
        elif self._phase is Phase.BODY:
            self._check_body_rate()
        elif self._phase is not Phase.ANSWER:
            self._close()
        if not unsent:
            self._last_sent = -1

    def _check_body_rate(self) -> None:
        limits, size_before = self._limits, self._window_size
        paused = size_before < 0 or self._flow.read_paused
        self._window_size = -1 if self._flow.read_paused else self._size
        if not paused and (not self._trusted or self._size - size_before < limits.rate * limits.window):
            self._refuse(TooSlow("the body of the request comes too slowly", hint="send it again"))

    def _check_reading_rate(self, sent: int) -> None:
        """Abort the connection of a peer that reads its answer too slowly."""
        sent_before, self._last_sent = self._last_sent, sent
        if sent_before >= 0 and sent - sent_before < self._limits.rate * self._limits.window:
            self._transport.abort()
