"""Answers that take minutes give signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from starlette.responses import Response

from pilotage.core.errors import NotFound
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


def test_a_late_answer_follows_signs_of_life(loop: VirtualLoop) -> None:
    listener = Listener()
    loop.run_until_complete(serve(3.5 * SILENCE, listener))
    assert listener.body == b"   [1,2]"
    assert msgspec.json.decode(listener.body) == [1, 2]


def test_no_silence_is_longer_than_promised(loop: VirtualLoop) -> None:
    listener, at = Listener(), [loop.time()]
    send = listener.send

    async def timed(message: Any) -> None:
        at.append(loop.time())
        await send(message)

    listener.send = timed  # type: ignore[method-assign]
    loop.run_until_complete(serve(600.0, listener))
    assert max(later - earlier for earlier, later in pairwise(at)) <= SILENCE


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
