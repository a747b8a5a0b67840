"""A connection on which nothing is asked for any more is ended, also one whose request never becomes whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from pilotage.server.context import ConnectionCounts
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection import HttpConnection
from pilotage.server.http.connection_limits import ConnectionCapacity, ConnectionLimits
from pilotage.server.http.connection_timer import ConnectionClock
from tests.deadlines import PATIENCE


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is asked for")


async def _told(begun: bytes, capacity: ConnectionCapacity) -> bytes:
    """What a client hears that sends this and then waits; until the connection ends."""
    config, state = uvicorn.Config(_nothing), ServerState()
    admission = Admission(capacity, ConnectionCounts())
    clock = ConnectionClock(ConnectionLimits(first_byte=0.5, head_time=0.5))

    def connection() -> HttpConnection:
        nothing: Any = None
        return HttpConnection(nothing, admission, clock, config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        writer.write(begun)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
        server.close()
        assert not state.connections
        assert not admission.total


@pytest.mark.parametrize("begun", [b"", b"POST /v1/pi", b"POST /v1/pilot/exchange HTTP/1.1\r\nHost: he"])
def test_an_idle_connection_is_ended(begun: bytes) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_told(begun, ConnectionCapacity())) == b""


def test_a_connection_without_room_is_refused_and_ended() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(_told(b"", ConnectionCapacity(max_connections=0)))
    assert told.startswith(b"HTTP/1.1 429 ")
    assert b"connection: close\r\n" in told
