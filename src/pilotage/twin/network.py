"""The way of pilots' messages to a server in virtual time: the bytes of the wire, without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from pilotage.core.errors import PilotageError
from pilotage.server.errors import error_answer
from pilotage.server.http.pilot_endpoints import ENDPOINTS, PilotCall
from pilotage.store.writer.replies import LoopReply
from pilotage.twin.pilots import CallFailed, Reply
from pilotage.twin.server import TwinServer
from pilotage.wire.pilot import EnrolResponse, ErrorBody, ExchangeResponse
from pilotage.wire.pilot_calls import ENROL, EXCHANGE

_ANSWERS: dict[str, msgspec.json.Decoder[Any]] = {
    ENROL.path: msgspec.json.Decoder(EnrolResponse),
    EXCHANGE.path: msgspec.json.Decoder(ExchangeResponse),
}
_encode = msgspec.json.Encoder().encode


class DirectNetwork:
    """A network that loses nothing. A message takes `latency` seconds there, and its answer as many back."""

    def __init__(self, server: TwinServer, loop: asyncio.AbstractEventLoop, latency: float = 0.01) -> None:
        self._server, self._loop, self._latency = server, loop, latency
        self.calls = 0
        self.mistake: BaseException | None = None
        """An error that the server did not expect: pilots would repeat their messages for ever."""

    def post(self, path: str, token: str, message: Any, reply: Reply) -> None:
        self.calls += 1
        self._loop.call_later(self._latency, self._arrive, path, token, _encode(message), reply)

    def _arrive(self, path: str, token: str, body: bytes, reply: Reply) -> None:
        def answer(result: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, PilotageError):
                self.mistake = error
            given = _ANSWERS[path].decode(result) if error is None else failure_of(error)
            self._loop.call_later(self._latency, reply, given)

        serve(self._server, self._loop, path, token, body, answer)


def serve(
    server: TwinServer,
    loop: asyncio.AbstractEventLoop,
    path: str,
    token: str,
    body: bytes,
    answer: Any,
) -> None:
    """Give a message to a server. `answer` is called with the bytes of the answer and None, or None and the error."""
    try:
        call = ENDPOINTS[path].decode(server.context, token, body)
    except Exception as error:
        answer(None, error)
        return

    def finish(result: Any, error: BaseException | None) -> None:
        answer(None if error is not None else call.encode(result), error)

    if call.is_long:
        loop.create_task(_carry_out(server, call, finish))
        return
    try:
        server.context.writer.submit(call.request, LoopReply(loop, finish))
    except Exception as error:
        answer(None, error)


async def _carry_out(server: TwinServer, call: PilotCall, finish: Any) -> None:
    """Serve a call of several parts, or one that asks others before."""
    try:
        result = await call.run(server.context.writer)
    except Exception as error:
        finish(None, error)
    else:
        finish(result, None)


def failure_of(error: BaseException) -> CallFailed:
    """An error of the server as its pilots see it."""
    payload, status, wait = error_answer(error)
    body = msgspec.json.decode(payload, type=ErrorBody)
    return CallFailed(
        f"{status} {body.code} {body.message}",
        superseded=status in (401, 410) or body.code == "superseded",
        refused=status not in (408, 429) and status < 500,
        retry_after=float(wait),
    )
