"""A connection whose peer sends, or reads, too slowly ends; one that is only far away does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
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

QUICK = ConnectionLimits(first_byte=2.0, idle=0.4, head_time=PATIENCE, window=0.4, rate=100_000.0, linger=0.4)
STEADY = ConnectionLimits(first_byte=2.0, idle=0.4, head_time=PATIENCE, window=1.5, rate=1000.0)
"""Of these limits the window alone can end a request, and only if this process stands still for longer."""
LARGE = 40_000_000
HEAD = b"POST /somewhere HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


async def _takes_all(scope: Any, receive: Any, send: Any) -> None:
    """Trusts whoever asks, reads the body, and answers with what it has read."""
    scope["state"]["connection"].trust()
    size, message = 0, {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        size += len(message.get("body", b""))
    text = str(size).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]}
    )
    await send({"type": "http.response.body", "body": text})


async def _tells_much(scope: Any, receive: Any, send: Any) -> None:
    """Answers with many bytes, in pieces, as long as somebody reads them."""
    headers = [(b"content-length", str(LARGE).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    piece = b"x" * 100_000
    for left in range(LARGE - len(piece), -1, -len(piece)):
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


async def _tells_much_at_once(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", str(LARGE).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * LARGE})


async def _talk(app: Any, talk: Talk, limits: ConnectionLimits = QUICK) -> Any:
    config, state = uvicorn.Config(app, lifespan="off"), ServerState()
    admission, clock = Admission(ConnectionCapacity(), ConnectionCounts()), ConnectionClock(limits)

    def connection() -> HttpConnection:
        nothing: Any = None
        return HttpConnection(nothing, admission, clock, config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    reader, writer = await asyncio.open_connection(sock=client, limit=2**16)
    try:
        told = await asyncio.wait_for(talk(reader, writer), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while admission.total or state.tasks:
                await asyncio.sleep(0.01)
        return told
    finally:
        writer.close()
        server.close()


def run(app: Any, talk: Talk, limits: ConnectionLimits = QUICK) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_talk(app, talk, limits))


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(HEAD)
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.05)
        return await answer

    assert run(_takes_all, talk).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_a_body_that_comes_slowly_but_steadily_is_taken() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(HEAD)
        for _ in range(40):
            writer.write(b"x" * 25_000)
            await asyncio.sleep(0.1)
        return await reader.readline()

    assert run(_takes_all, talk, STEADY).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_a_server_that_is_slow_itself_does_not_blame_the_sender() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["connection"].trust()
        await asyncio.sleep(2 * STEADY.window)
        await _takes_all(scope, receive, send)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(HEAD + b"x" * 1_000_000)
        return await reader.readline()

    assert run(slow, talk, STEADY).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("method", "answer"), [(b"POST", b"HTTP/1.1 200 "), (b"DELETE", b"HTTP/1.1 200 "), (b"GET", b"")]
)
def test_a_sender_that_closes_its_side_hears_the_outcome_of_a_change(method: bytes, answer: bytes) -> None:
    closed = asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        while not (closed.is_set() or scope["state"]["connection"].closes_after_answer):
            await asyncio.sleep(0.01)
        await _takes_all(scope, receive, send)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(method + b" / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\nx")
        writer.write_eof()
        said = await reader.read()
        closed.set()
        return said

    told = run(late, talk)
    assert told.startswith(answer)
    assert (b"connection: close" in told) is bool(answer)


@pytest.mark.parametrize("app", [_tells_much, _tells_much_at_once])
def test_an_answer_that_nobody_reads_is_given_up(app: Any) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")

    run(app, talk)


@pytest.mark.slow
@pytest.mark.parametrize("app", [_tells_much, _tells_much_at_once])
def test_an_answer_that_is_read_slowly_but_steadily_is_told_whole(app: Any) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        read = 0
        while read < LARGE:
            read += len(await reader.readexactly(min(LARGE - read, 1_000_000)))
            await asyncio.sleep(0.1)
        return read

    assert run(app, talk, STEADY) == LARGE


def test_a_peer_that_says_nothing_after_an_answer_is_let_go() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        return await reader.read()

    assert run(_takes_all, talk).startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_refused_request_is_thrown_away_for_a_while_only() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"nonsense\r\n\r\n")
        told = await reader.read()
        try:
            while True:
                writer.write(b"x" * 1000)
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            return told

    assert run(_takes_all, talk).startswith(b"HTTP/1.1 400 ")
