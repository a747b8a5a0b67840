"""Answers that take minutes give signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from uvicorn.server import ServerState

from pilotage.core.errors import NotFound
from pilotage.server.context import ConnectionCounts
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection import HttpConnection
from pilotage.server.http.connection_limits import ConnectionCapacity, ConnectionLimits
from pilotage.server.http.connection_timer import ConnectionClock
from pilotage.server.http.patient_answers import SILENCE, patient_answer
from pilotage.twin.virtual_loop import VirtualLoop

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(0.0)
    yield loop
    loop.close()


class Listener:
    """A client that may leave."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.gone = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def work(seconds: float) -> list[int]:
    await asyncio.sleep(seconds)
    return [1, 2]


async def serve(seconds: float, listener: Listener) -> Response:
    response = await patient_answer(work(seconds))
    await response(SCOPE, listener.receive, listener.send)
    return response


def test_an_early_answer_has_its_length(loop: VirtualLoop) -> None:
    listener = Listener()
    response = loop.run_until_complete(serve(SILENCE - 1, listener))
    assert response.headers["content-length"] == "5"
    assert listener.body == b"[1,2]"


class Wire(asyncio.Transport):
    """The way to a client, with the time of all parts that were written."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__({"peername": ("192.0.2.1", 7), "sockname": ("192.0.2.2", 80)})
        self._loop = loop
        self._closing = False
        self.parts: list[tuple[float, bytes]] = []

    def write(self, data: Any) -> None:
        self.parts.append((self._loop.time(), bytes(data)))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def served(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Wire:
    """The parts of an answer to one request over a connection, until 200 s after its end."""
    wire, done = Wire(loop), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        try:
            response = await patient_answer(work)
            await response(scope, receive, send)
        finally:
            done.set()

    async def exchange() -> None:
        nothing: Any = None
        connection = HttpConnection(
            nothing,
            Admission(ConnectionCapacity(), ConnectionCounts()),
            ConnectionClock(ConnectionLimits(idle=200.0)),
            config=uvicorn.Config(application, lifespan="off"),
            server_state=ServerState(),
            app_state={},
        )
        connection.connection_made(wire)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        connection.trust()
        await done.wait()
        await asyncio.sleep(190.0)
        connection.connection_lost(None)

    loop.run_until_complete(exchange())
    return wire


@pytest.mark.parametrize(("seconds", "signs"), [(1.5 * SILENCE, 1), (3.5 * SILENCE, 3), (600.0, 10)])
def test_a_late_answer_follows_signs_of_life(loop: VirtualLoop, seconds: float, signs: int) -> None:
    wire = served(loop, work(seconds))
    body = b"".join(data for _, data in wire.parts).partition(b"\r\n\r\n")[2]
    assert body == b"1\r\n \r\n" * signs + b"5\r\n[1,2]\r\n0\r\n\r\n"
    at = [loop_time for loop_time, _ in wire.parts]
    longest = max(later - earlier for earlier, later in pairwise([0.0, *at]))
    assert longest < 60.0
    assert at[-1] == seconds, "no sign follows the answer"


def test_an_error_cuts_a_late_answer(loop: VirtualLoop) -> None:
    async def fail() -> None:
        await asyncio.sleep(2.5 * SILENCE)
        raise NotFound("no such job")

    wire = served(loop, fail())
    assert wire.is_closing()
    assert wire.parts[-1][1] == b"1\r\n \r\n"


def test_an_early_error_is_raised(loop: VirtualLoop) -> None:
    async def fail() -> None:
        raise NotFound("no such job")

    with pytest.raises(NotFound):
        loop.run_until_complete(patient_answer(fail()))


@pytest.mark.parametrize("seconds", [1.0, 2 * SILENCE])
def test_work_ends_with_its_listener(loop: VirtualLoop, seconds: float) -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(loop.time())

    async def leave_early() -> None:
        listener = Listener()

        async def answer() -> None:
            response = await patient_answer(endless())
            await response(SCOPE, listener.receive, listener.send)

        task = asyncio.ensure_future(answer())
        await asyncio.sleep(seconds)
        listener.gone.set()
        if seconds < SILENCE:
            task.cancel()
        await asyncio.wait((task,))
        await asyncio.sleep(0)

    loop.run_until_complete(leave_early())
    assert ended == [seconds]
