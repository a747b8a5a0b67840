"""Answers that may take minutes. Signs of life keep proxies from cutting them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

SILENCE = 45.0
"""Seconds until a sign of life. Some proxies cut an answer of which nothing comes for a minute."""
SIGN = b" "
"""White space may stand before a JSON document."""
MEDIA_TYPE = "application/json"


async def patient_answer(work: Coroutine[Any, Any, Any], silence: float = SILENCE) -> Response:
    """The result of `work` as JSON. After `silence` seconds the answer begins with white space.

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
    return StreamingResponse(_signs_and_result(task, silence), media_type=MEDIA_TYPE)


async def _signs_and_result(task: asyncio.Task[Any], silence: float) -> AsyncIterator[bytes]:
    try:
        while not task.done():
            yield SIGN
            await asyncio.wait((task,), timeout=silence)
        yield msgspec.json.encode(task.result())
    finally:
        task.cancel()
