"""A server that stood still does not end the connections of peers that it did not read meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionCapacity, ConnectionLimits
from pilotage.server.http.timed_connection import Phase, TimedConnection

LIMITS = ConnectionLimits()


class Loop:
    """An event loop's clock and its one timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due = 0.0
        self.call: Callable[[], object] = lambda: None

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], object]) -> object:
        self.due, self.call = self.now + delay, call
        return self

    def run(self, until: float, late: float = 0.0) -> None:
        """Run the timer each time that it is due, or as much later."""
        while self.due + late <= until:
            self.now = self.due + late
            self.call()
        self.now = until


class Transport:
    """A transport that only ends."""

    closed = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


class Connection(TimedConnection):
    refused = False

    def _refuse(self, error: BaseException) -> None:
        self.refused = True

    def receive_body(self, size: int) -> None:
        self._size += size


@pytest.fixture
def loop() -> Loop:
    return Loop()


def connection(loop: Loop, phase: Phase) -> tuple[Connection, Transport]:
    """A connection of a peer with a token, in its first window."""
    event_loop: Any = loop
    transport: Any = Transport()
    made = Connection(Admission(ConnectionCapacity()), LIMITS, event_loop)
    assert made._admit(transport)
    made.trust()
    made._enter(phase, LIMITS.window)
    return made, transport


def test_a_sender_gets_time_after_the_server_stood_still(loop: Loop) -> None:
    sender, _ = connection(loop, Phase.BODY)
    sender.receive_body(20_000)
    loop.run(loop.now + LIMITS.window)
    assert not sender.refused
    # The server is suspended for two minutes. It runs its timer before it reads.
    loop.now += 120
    loop.call()
    assert not sender.refused
    sender.receive_body(20_000)
    loop.run(loop.now + LIMITS.window)
    assert not sender.refused


def test_a_slow_sender_is_refused_soon_after_the_server_stood_still(loop: Loop) -> None:
    sender, _ = connection(loop, Phase.BODY)
    loop.now += 120
    loop.call()
    assert not sender.refused
    loop.run(loop.now + 2 * LIMITS.window)
    assert sender.refused


def test_an_idle_peer_gets_time_for_its_next_request(loop: Loop) -> None:
    _, transport = connection(loop, Phase.IDLE)
    loop.now += 120
    loop.call()
    assert not transport.closed
    loop.run(loop.now + LIMITS.tick)
    assert transport.closed


def test_timers_that_are_always_a_little_late_extend_nothing(loop: Loop) -> None:
    _, transport = connection(loop, Phase.HEAD)
    loop.run(loop.now + LIMITS.window + 1, late=0.1)
    assert transport.closed
