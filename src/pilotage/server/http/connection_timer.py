"""The timer of a connection: a deadline for each phase, and minimum rates for bodies and for reading answers."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from pilotage.core.errors import TooSlow
from pilotage.server.http.connection_limits import ConnectionLimits


class Phase(Enum):
    """The phases of a connection, by the event it waits for."""

    IDLE = "the next request"
    HEAD = "the rest of a header"
    BODY = "the rest of a body"
    ANSWER = "the server's answer"
    LINGER = "the rest of a refused request, which is discarded"
    CLOSING = "the peer, to read what was written"


class TimedPeer(Protocol):
    """The part of a connection that its timer uses."""

    flow: FlowControl
    is_trusted: bool
    """A request with a valid token was received."""
    written: int
    """Bytes given to the transport."""

    @property
    def body_size(self) -> int:
        """Bytes of the present body received so far."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that the transport has yet to send."""
        ...

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, then close."""
        ...

    def give_sign(self) -> None:
        """Show that the server still works at a long answer."""
        ...

    def close_now(self) -> None:
        """Close once everything is written, and read no further."""
        ...

    def evict(self) -> None:
        """Close at once."""
        ...


LOOKS = 4
"""Looks at all deadlines within a tick."""


class ConnectionTimer:
    """Ends a connection whose peer stays in a phase for too long, or sends or reads too slowly."""

    __slots__ = ("_clock", "_last_sent", "_limits", "_loop", "_window_size", "deadline", "phase")

    def __init__(self, clock: ConnectionClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._limits = clock.limits
        self._loop = loop
        self.phase = Phase.IDLE
        self.deadline = 0.0
        """End of the present phase, by the loop's clock."""
        self._last_sent = -1
        """Bytes that had been sent at the last check; -1: everything."""
        self._window_size = 0
        """Bytes of the body at the start of the present time window; -1: reading was paused during the window."""

    def start(self, peer: TimedPeer) -> None:
        """Watch a new connection, until `stop`."""
        self.enter(Phase.IDLE, self._limits.first_byte)
        self._clock.watch(self, peer, self._loop)

    def stop(self) -> None:
        self._clock.forget(self)

    def enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase, which may take this time, or longer at the minimum rate."""
        self.phase = phase
        self.deadline = self._loop.time() + seconds
        self._window_size = 0

    def pause_body(self) -> None:
        """Do not blame the peer for this time window: the server has paused reading."""
        self._window_size = -1

    def end_phase(self, peer: TimedPeer) -> None:
        """Act on the end of the present phase."""
        self.deadline = self._loop.time() + self._limits.window
        unsent = peer.unsent
        if self.phase is Phase.LINGER:
            peer.close_now()
        elif unsent:
            self._check_reading_rate(peer, peer.written - unsent)
        elif self.phase is Phase.BODY:
            self._check_body_rate(peer)
        elif self.phase is Phase.ANSWER:
            peer.give_sign()
        else:
            peer.close_now()
        if not unsent:
            self._last_sent = -1

    def _check_body_rate(self, peer: TimedPeer) -> None:
        least, size_before = self._limits.rate * self._limits.window, self._window_size
        was_paused = size_before < 0 or peer.flow.read_paused
        self._window_size = -1 if peer.flow.read_paused else peer.body_size
        if not was_paused and (not peer.is_trusted or peer.body_size - size_before < least):
            peer.refuse(TooSlow("the body of the request comes too slowly", hint="send it again"))

    def _check_reading_rate(self, peer: TimedPeer, sent: int) -> None:
        """Close the connection of a peer that reads its answer too slowly."""
        sent_before, self._last_sent = self._last_sent, sent
        if sent_before >= 0 and sent - sent_before < self._limits.rate * self._limits.window:
            peer.evict()


class ConnectionClock:
    """Looks at the deadlines of all connections together: a timer for each would wake an idle server as often."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._peers: dict[ConnectionTimer, TimedPeer] = {}
        self._due = 0.0
        """When the next look should be. A later one shows that the server itself stood still."""
        self._runs = False

    def watch(self, timer: ConnectionTimer, peer: TimedPeer, loop: asyncio.AbstractEventLoop) -> None:
        self._peers[timer] = peer
        if not self._runs:
            self._runs = True
            self._schedule(loop)

    def forget(self, timer: ConnectionTimer) -> None:
        self._peers.pop(timer, None)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + self.limits.tick / LOOKS
        loop.call_at(self._due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now, tick = loop.time(), self.limits.tick
        late = now - self._due
        if late > tick / 4:
            # The server read nothing meanwhile: a peer is not blamed for that.
            for timer in self._peers:
                timer.deadline = max(timer.deadline, now + min(late, tick))
        for timer, peer in [entry for entry in self._peers.items() if entry[0].deadline <= now]:
            timer.end_phase(peer)
        self._runs = bool(self._peers)
        if self._runs:
            self._schedule(loop)
