"""Whole messages: each is served on the loop of the decisions, as connections serve it elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import anyio.to_thread

from pilotage.server.context import Context
from pilotage.server.errors import error_answer
from pilotage.server.http.app import Application
from pilotage.server.http.pilot_endpoints import ENDPOINTS, PilotCall, bearer, storable_error
from pilotage.server.recording.lines import ReceivedMessage
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.tape import WholeAnswer
from pilotage.store.writer.replies import LoopReply

JSON = [(b"content-type", b"application/json")]


class MessageService:
    """Answers the messages of one server."""

    def __init__(
        self,
        context: Context,
        application: Application,
        answered: Callable[[ReceivedMessage, WholeAnswer], None],
    ) -> None:
        """`answered` is called with each message and its answer."""
        self._context = context
        self._application = application
        self._answered = answered
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, message: ReceivedMessage) -> None:
        endpoint = ENDPOINTS.get(message.path) if message.method == "POST" else None
        if endpoint is None:
            self._start(self._run_application(message))
            return
        try:
            call = endpoint.decode(self._context, _token(message), message.body)
            if call.is_long:
                self._start(self._carry_out(message, call))
            else:
                reply = LoopReply(
                    asyncio.get_running_loop(),
                    lambda result, error: self._finish(message, call, result, error),
                )
                self._context.writer.submit(call.request, reply)
        except Exception as error:
            self._refuse(message, error)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, message: ReceivedMessage, call: PilotCall) -> None:
        """Answer a call of several parts, or one that asks others before."""
        try:
            result = await call.run(self._context.writer)
        except Exception as error:
            self._refuse(message, error)
        else:
            self._finish(message, call, result, None)

    def _finish(
        self, message: ReceivedMessage, call: PilotCall, result: Any, error: BaseException | None
    ) -> None:
        if error is not None:
            self._refuse(message, error)
        else:
            self._answered(message, WholeAnswer(200, JSON, call.encode(result)))

    def _refuse(self, message: ReceivedMessage, error: BaseException) -> None:
        body, status, wait = error_answer(storable_error(error))
        headers = [*JSON, (b"retry-after", b"%d" % wait)] if wait else JSON
        self._answered(message, WholeAnswer(status, headers, body))

    async def _run_application(self, message: ReceivedMessage) -> None:
        status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()
        waiting = [message.body]

        async def receive() -> MutableMapping[str, Any]:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(), "more_body": False}
            # Its sender waits for the answer: nobody leaves.
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal status, headers
            if event["type"] == "http.response.start":
                status, headers = event["status"], list(event.get("headers", ()))
            else:
                parts.append(event.get("body", b""))

        try:
            await self._application(_scope_of(message), receive, send)
        except Exception as error:
            self._refuse(message, error)
        else:
            self._answered(message, WholeAnswer(status, headers, b"".join(parts)))


def _token(message: ReceivedMessage) -> str:
    return bearer(next((value for name, value in message.headers if name == b"authorization"), b""))


def _scope_of(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": None,
        "client": message.client,
        "method": message.method,
        "root_path": "",
        "path": message.path,
        "raw_path": message.raw_path,
        "query_string": message.query,
        "headers": message.headers,
        "state": {},
    }


@contextmanager
def plain_routes_inline() -> Iterator[None]:
    """FastAPI runs plain functions in threads of anyio, which ask no loop. On a `DecisionLoop` they run inline."""
    in_thread = anyio.to_thread.run_sync

    async def run_sync(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if isinstance(asyncio.get_running_loop(), DecisionLoop):
            return call(*arguments)
        return await in_thread(call, *arguments, **options)

    anyio.to_thread.run_sync = run_sync  # type: ignore[assignment]
    try:
        yield
    finally:
        anyio.to_thread.run_sync = in_thread
