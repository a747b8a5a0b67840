"""A server that stood still does not end the connections of peers that it did not read meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.connection_timer import ConnectionClock, ConnectionTimer, Phase

LIMITS = ConnectionLimits()


class Loop:
    """An event loop's clock and its one timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due = 0.0
        self.call: Callable[[], object] = lambda: None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., object], *arguments: object) -> object:
        self.due, self.call = when, partial(call, *arguments)
        return self

    def run(self, until: float, late: float = 0.0) -> None:
        """Run the timer each time that it is due, or as much later."""
        while self.due + late <= until:
            self.now = self.due + late
            self.call()
        self.now = until


class Peer:
    """A connection of a peer with a token, which says what its timer does to it."""

    is_trusted = True
    flow = FlowControl(cast("asyncio.Transport", None))
    body_size = 0
    written = 0
    unsent = 0
    refused = False
    closed = False

    def refuse(self, error: BaseException) -> None:
        self.refused = True

    def give_sign(self) -> None:
        raise AssertionError("nothing is answered")

    def close_now(self) -> None:
        self.closed = True

    def evict(self) -> None:
        raise AssertionError("nothing is left unread")


@pytest.fixture
def loop() -> Loop:
    return Loop()


def connection(loop: Loop, phase: Phase) -> Peer:
    """A connection in its first window."""
    event_loop: Any = loop
    peer = Peer()
    timer = ConnectionTimer(ConnectionClock(LIMITS), event_loop)
    timer.start(peer)
    timer.enter(phase, LIMITS.window)
    return peer


def test_a_sender_gets_time_after_the_server_stood_still(loop: Loop) -> None:
    sender = connection(loop, Phase.BODY)
    sender.body_size += 20_000
    loop.run(loop.now + LIMITS.window)
    assert not sender.refused
    # The server is suspended for two minutes. It runs its timer before it reads.
    loop.now += 120
    loop.call()
    assert not sender.refused
    sender.body_size += 20_000
    loop.run(loop.now + LIMITS.window)
    assert not sender.refused


def test_a_slow_sender_is_refused_soon_after_the_server_stood_still(loop: Loop) -> None:
    sender = connection(loop, Phase.BODY)
    loop.now += 120
    loop.call()
    assert not sender.refused
    loop.run(loop.now + 2 * LIMITS.window)
    assert sender.refused


def test_an_idle_peer_gets_time_for_its_next_request(loop: Loop) -> None:
    peer = connection(loop, Phase.IDLE)
    loop.now += 120
    loop.call()
    assert not peer.closed
    loop.run(loop.now + LIMITS.tick)
    assert peer.closed


def test_timers_that_are_always_a_little_late_extend_nothing(loop: Loop) -> None:
    peer = connection(loop, Phase.HEAD)
    loop.run(loop.now + LIMITS.window + LIMITS.tick, late=0.1)
    assert peer.closed
