"""Answers that may take minutes. Signs of life keep proxies from cutting them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SILENCE = 55.0
"""Seconds until a sign of life. Some proxies cut an answer of which nothing comes for a minute."""
SIGN = b" "
"""White space may stand before a JSON document."""
CHUNK = b"1\r\n" + SIGN + b"\r\n"
"""A sign as a part of an answer whose length is not declared."""
MEDIA_TYPE = "application/json"


async def patient_answer(work: Coroutine[Any, Any, Any], silence: float = SILENCE) -> Response:
    """The result of `work` as JSON. After `silence` seconds at most the answer begins with white space.

    The status is sent with it, so a later error can only cut the answer.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=silence)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.done():
        return Response(msgspec.json.encode(task.result()), media_type=MEDIA_TYPE)
    return _LateAnswer(task, silence)


class _LateAnswer(Response):
    """Signs of life, then the result of a task. It ends the task when the client has left.

    A `StreamingResponse` makes two further tasks for each answer, which a thousand listeners would feel.
    """

    media_type = MEDIA_TYPE

    def __init__(self, task: asyncio.Task[Any], silence: float) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._task, self._silence = task, silence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await send({"type": "http.response.body", "body": SIGN, "more_body": True})
            if "connection" in scope.get("state", ()):
                # Written there without a task or a message: a thousand listeners need twenty a second.
                scope["state"]["connection"].repeat(CHUNK, self._silence)
            await asyncio.wait((self._task, gone), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                await send({"type": "http.response.body", "body": msgspec.json.encode(self._task.result())})
        finally:
            gone.cancel()
            self._task.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
