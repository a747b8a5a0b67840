"""The connections of a recorded server: in a thread of their own, which hands whole messages to the decisions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import uvloop

from pilotage.core.errors import NotAuthenticated, PilotageError, TooLarge
from pilotage.server.context import Context
from pilotage.server.errors import response_for
from pilotage.server.http.app import Application, Receive, Send
from pilotage.server.http.connection_limits import BODY_WITHOUT_TOKEN
from pilotage.server.http.identity import Scope, identify
from pilotage.server.http.pilot_endpoints import ENDPOINTS, bearer, pilot_is_known
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.recording.lines import ListeningEnded, ReceivedMessage
from pilotage.server.recording.recorder import Recorder
from pilotage.server.recording.tape import WholeAnswer
from pilotage.wire.pilot_calls import ENROL


class MessageGate:
    """The application of the connections' thread: it reads a whole request, and waits for the answer."""

    def __init__(self, context: Context, recorder: Recorder) -> None:
        self._context = context
        self._recorder = recorder
        self._numbers = count(1)
        self._checks = _Checks(context, self._exchange)
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[WholeAnswer]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST" and scope["path"] in ENDPOINTS:
            try:
                await self._check_pilot(scope)
            except PilotageError as error:
                await response_for(error)(scope, receive, send)
                return
            await self._exchange(scope, receive, send)
        else:
            await self._checks(scope, receive, send)

    async def _check_pilot(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        size, most = int(headers.get(b"content-length", b"0")), ENDPOINTS[scope["path"]].max_body
        if size > most or b"transfer-encoding" in headers:
            raise TooLarge(f"the body has more than {most} bytes, or does not tell its size")
        token = bearer(headers.get(b"authorization", b""))
        if size > BODY_WITHOUT_TOKEN and not await pilot_is_known(self._context, token):
            raise NotAuthenticated("this pilot's token is not known", hint="enrol first")

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a request to the decisions, and send their answer."""
        parts, more = [], True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            parts.append(event.get("body", b""))
            more = event.get("more_body", False)
        loop = asyncio.get_running_loop()
        message = ReceivedMessage(
            next(self._numbers),
            scope["method"],
            scope["path"],
            scope["raw_path"],
            scope["query_string"],
            list(scope["headers"]),
            scope["client"],
            b"".join(parts),
        )
        future: asyncio.Future[WholeAnswer] = loop.create_future()
        self._waiting[message.number] = loop, future
        self._recorder.post(message)
        answer = await future
        if answer.status < 400 and scope["path"] in ENDPOINTS and scope["path"] != ENROL.path:
            scope["state"]["connection"].trust()
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    def answered(self, message: ReceivedMessage, answer: WholeAnswer) -> None:
        """Called by the decisions."""
        loop, future = self._waiting.pop(message.number)
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, future, answer)


def _settle(future: asyncio.Future[WholeAnswer], answer: WholeAnswer) -> None:
    if not future.done():
        future.set_result(answer)


class _Checks(Application):
    """The checks of the application before a body is read. The decisions repeat them, with the notices.

    These checks change no state of the decisions: a replay has them in no thread.
    """

    def __init__(self, context: Context, then: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        super().__init__(context)
        self._api = then  # type: ignore[assignment]
        self._issuers = TrustedIssuers(DirectCalls())

    async def _identify(self, scope: Scope) -> bool:
        return await identify(self.context, scope, self._issuers)

    async def _answer_directly(self, scope: Scope) -> None:
        """The decisions answer."""

    def _notice(self, scope: Scope) -> str:
        return ""


class ThreadOfConnections:
    """Runs the connections until it is told to stop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def start(self, listen: Callable[[], Awaitable[Any]]) -> None:
        """`listen` runs in the thread."""

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(_awaited(listen))
            except BaseException as error:
                self.error = error
            finally:
                self._recorder.post(ListeningEnded())

        self._thread = threading.Thread(target=run, name="connections", daemon=True)
        self._thread.start()


async def _awaited(listen: Callable[[], Awaitable[Any]]) -> None:
    await listen()
