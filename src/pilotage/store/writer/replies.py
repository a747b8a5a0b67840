"""Delivery of the writer's results to the callers of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

Reply = Callable[[Any, BaseException | None], None]
"""Called with the answer and None, or with None and the error."""


class LoopReply:
    """A reply delivered in an event loop. The replies of one group wake their loop once."""

    __slots__ = ("loop", "tell")

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Reply) -> None:
        self.loop = loop
        self.tell = tell

    def __call__(self, result: Any, error: BaseException | None) -> None:
        _wake_loop(self.loop, self.tell, result, error)


def asyncio_reply(future: asyncio.Future[Any]) -> Reply:
    """The callback of a `LoopReply` for a coroutine that awaits `future`."""

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return settle


def future_reply(future: Future[Any]) -> Reply:
    """A reply for a thread that waits for `future`."""

    def reply(result: Any, error: BaseException | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return reply


def send_results(
    replies: Sequence[Reply], results: Sequence[Any], here: asyncio.AbstractEventLoop | None = None
) -> None:
    """Deliver each result, or error, to its reply. `here` is the event loop of this thread."""
    deliveries: dict[asyncio.AbstractEventLoop, list[tuple[Reply, Any]]] = {}
    for reply, result in zip(replies, results, strict=True):
        if isinstance(reply, LoopReply):
            deliveries.setdefault(reply.loop, []).append((reply.tell, result))
        elif isinstance(result, BaseException):
            reply(None, result)
        else:
            reply(result, None)
    for loop, answers in deliveries.items():
        if loop is here:
            _call_replies(answers)
        else:
            _wake_loop(loop, _call_replies, answers)


def send_error(replies: Sequence[Reply], error: BaseException) -> None:
    """Deliver the same error to all replies."""
    for reply in replies:
        reply(None, error)


def _wake_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, *arguments)


def _call_replies(answers: list[tuple[Reply, Any]]) -> None:
    for tell, result in answers:
        if isinstance(result, BaseException):
            tell(None, result)
        else:
            tell(result, None)
