"""Connections: the pilot's calls are answered here, all others by uvicorn.

Between the parser and the writer of a pilot's call there is nothing: no task, no events of ASGI. For one that asks for
a single job these cost as much as half of its match. A connection on which something else is asked for is handed to
uvicorn with that request, for good: pilots use one connection for their calls and others for files.

A request that comes before the one ahead of it has been answered is not read: the connection ends with that answer, and
whoever has sent it sends it again, as HTTP has it. No pilot does so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.server.context import Context
from pilotage.server.hot import HANDLERS, MOST_BYTES, Call, Handler, bearer, refusal
from pilotage.store.replies import LoopReply

_BEGINNINGS: dict[bytes, Handler] = {
    f"POST {path} HTTP/1.1\r\n".encode(): handler for path, handler in HANDLERS.items()
}
_LONGEST = max(map(len, _BEGINNINGS))

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def speaking_with_pilots(context: Context) -> type[asyncio.Protocol]:
    """The protocol of a server's connections, for uvicorn's `Config`."""
    return cast("type[asyncio.Protocol]", partial(PilotConnection, context))


class PilotConnection(asyncio.Protocol):
    """One connection, as long as only pilots' calls come over it."""

    def __init__(
        self,
        context: Context,
        *,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._context = context
        self._loop = _loop or asyncio.get_running_loop()
        self._state = server_state
        self._idle_at_most = config.timeout_keep_alive
        self._uvicorn = partial(
            cast("Callable[..., asyncio.Protocol]", AutoHTTPProtocol),
            config=config,
            server_state=server_state,
            app_state=app_state,
            _loop=_loop,
        )
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._heard = 0.0
        """When something came or was answered last, by the loop's clock."""
        self._begun = b""
        """The beginning of a request, as long as it does not tell what it is."""
        self._last = False
        """The connection ends with the answer to this request."""
        self._next()

    def _next(self) -> None:
        """Be ready for another request."""
        self._handler: Handler | None = None
        """Of the request that is read or answered now."""
        self._asked = False
        """It is whole."""
        self._token = ""
        self._waits_to_send = False
        self._body: list[bytes] = []
        self._size = 0

    # --- asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(self._idle_at_most, self._look_whether_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._state.connections.discard(self)
        self._timer.cancel()
        # They hold each other.
        self._parser = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._asked:
            self._last = True
            return
        if self._handler is None:
            data = self._begun + data
            self._begun = b""
            for beginning, handler in _BEGINNINGS.items():
                if data.startswith(beginning):
                    self._handler = handler
                    break
            else:
                if len(data) < _LONGEST and any(one.startswith(data) for one in _BEGINNINGS):
                    self._begun = data
                else:
                    self._hand_over(data)
                return
        self._size += len(data)
        if self._size > MOST_BYTES:
            self._refuse(TooLarge(f"the request has more than {MOST_BYTES} bytes"))
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._asked:
                # It is about what stands behind the request, or what else could be spoken after it.
                self._last = True
            else:
                self._refuse(InvalidInput("this is no HTTP request that is taken here"))

    def _hand_over(self, data: bytes) -> None:
        self._let_go()
        other = self._uvicorn()
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(data)

    def pause_writing(self) -> None:
        """Nobody takes the answers: no more requests are taken either."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    # --- uvicorn's

    def shutdown(self) -> None:
        """The server ends: no request is taken any more."""
        self._last = True
        if not self._asked:
            self._transport.close()

    # --- the parser's

    def on_message_begin(self) -> None:
        if self._asked:
            self._last = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._asked:
            return
        name = name.lower()
        if name == b"authorization":
            self._token = bearer(value)
        elif name == b"expect":
            self._waits_to_send = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        if self._waits_to_send and not self._asked:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if not self._asked:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._asked:
            return
        self._asked = True
        if not self._parser.should_keep_alive():
            self._last = True
        assert self._handler is not None
        try:
            call = self._handler(self._context, self._token, b"".join(self._body))
            self._context.writer.submit(call.request, LoopReply(self._loop, partial(self._answered, call)))
        except Exception as error:
            # Not before the parser has looked at what came with it.
            self._loop.call_soon(self._refuse, error)

    # --- answers

    def _answered(self, call: Call, result: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self._tell(200, call.told(result))
                return
        except Exception as unexpected:
            error = unexpected
        self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        if not self._asked:
            # The rest of the request is not read.
            self._asked = self._last = True
        self._tell(*refusal(error))

    def _tell(self, status: int, payload: bytes, retry_after: int = 0) -> None:
        if self._transport.is_closing():
            return
        self._heard = self._loop.time()
        self._state.total_requests += 1
        headers = b"".join([b"%s: %s\r\n" % header for header in self._state.default_headers])
        if retry_after:
            headers += b"retry-after: %d\r\n" % retry_after
        if self._last:
            headers += b"connection: close\r\n"
        self._transport.write(
            b"%scontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s"
            % (_STATUS_LINES[status], headers, len(payload), payload)
        )
        if self._last:
            self._transport.close()
        else:
            self._next()

    def _look_whether_idle(self) -> None:
        left = self._heard + self._idle_at_most - self._loop.time()
        if left <= 0 and not self._asked:
            self._transport.close()
        else:
            self._timer = self._loop.call_later(max(left, 1.0), self._look_whether_idle)
