"""The connections of a server: one reads a request, gives it to a handler, sends the answer, and waits for the next.

One request at a time: data that arrives before the answer closes the connection after that answer (RFC 9112, 9.3.2:
the client sends it again). Nothing is queued, and a request smuggled behind another is never carried out.
After a refused request the server keeps reading for a few seconds, so that the sender receives the answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterable
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from pilotage.core.errors import Overloaded, PilotageError
from pilotage.server.context import Context
from pilotage.server.errors import error_answer
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.connection_timer import ConnectionClock, ConnectionTimer, Phase
from pilotage.server.http.pilot_endpoints import PilotCallHandler, endpoint_of
from pilotage.server.http.request_cycle import Cycle, scope_of
from pilotage.server.http.request_reader import IncomingRequest, Received, RequestReader
from pilotage.server.http.tls_handshake import TlsHandshake

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def http_protocol_factory(
    context: Context,
    admission: Admission,
    limits: ConnectionLimits,
    tls: ssl.SSLContext | None = None,
    *,
    pilot_calls: bool = True,
) -> type[asyncio.Protocol]:
    """The protocol class of a server's connections, for uvicorn's `Config`. With `tls`, they begin with TLS.

    Without `pilot_calls`, the application gets the calls of pilots too.
    """
    plain = partial(HttpConnection, context, admission, ConnectionClock(limits), pilot_calls=pilot_calls)
    if tls is None:
        return cast("type[asyncio.Protocol]", plain)

    def encrypted(*, server_state: ServerState, **options: Any) -> TlsHandshake:
        make_connection = partial(plain, server_state=server_state, **options)
        return TlsHandshake(tls, admission, limits, server_state, make_connection)

    return cast("type[asyncio.Protocol]", encrypted)


class RequestHandler(Protocol):
    """Takes the body of one request, and answers it over the connection."""

    starts_early: bool
    """Whether the work begins with the header, before the body is complete."""
    changes: bool
    """Whether the sender must hear of the outcome: the request may change something."""
    response_started: bool
    """Whether a part of the answer was written already."""

    @property
    def wants_body(self) -> bool:
        """False while no more of the body should be read. The handler then has the reading resumed."""
        ...

    def add_body(self, data: bytes | bytearray) -> None: ...

    def complete(self) -> None:
        """Go on: the body is complete."""
        ...

    def abandon(self) -> None:
        """The answer is no longer needed."""
        ...


class AfterAnswer(Enum):
    """The state that follows the answer to the present request."""

    NEXT_REQUEST = "the connection waits for the next request"
    CLOSE = "the connection closes"
    LINGER = "unread data is discarded, then the connection closes"


# Looked up once: an attribute of an enumeration is dear where every request asks for it.
_IDLE, _HEAD, _BODY, _ANSWER = Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.ANSWER
_PART_OF_HEADER, _HEADER = Received.PART_OF_HEADER, Received.HEADER
_NEXT_REQUEST = AfterAnswer.NEXT_REQUEST
_READING = (_IDLE, _HEAD, _BODY)


class HttpConnection(asyncio.Protocol):
    """One connection, from its first byte to its end."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        clock: ConnectionClock,
        *,
        pilot_calls: bool = True,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self._app = config.loaded_app
        self._app_state = app_state
        self._pilot_calls = pilot_calls
        self.context = context
        self._admission = admission
        self._limits = clock.limits
        self._state = server_state
        self.loop = _loop or asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.flow: FlowControl
        self._timer = ConnectionTimer(clock, self.loop)
        self._reader = RequestReader(clock.limits)
        self._handler: RequestHandler | None = None
        """The handler of the present request, once its header is complete."""
        self._after = _NEXT_REQUEST
        self.address = ""
        self.is_trusted = False
        """A request with a valid token was received."""
        self.written = 0
        """Bytes given to the transport."""
        self._sign = (b"", 0.0)
        """A part of the present answer that shows life, and the seconds until it is written again."""

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.flow = FlowControl(self._transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if self._admission.join(self):
            self._timer.start(self)
            self._state.connections.add(self)  # type: ignore[arg-type]
            return
        self._after = AfterAnswer.CLOSE
        self._timer.enter(_ANSWER, self._limits.window)
        self.answer(*error_answer(Overloaded("the server has too many connections", retry_after=5.0)))

    def eof_received(self) -> bool:
        """Keep the connection for the answer to a change: its sender may have closed one side only.

        TLS cannot do that. A client that waits for news, as a pilot does, has most probably gone.
        """
        handler = self._handler
        if self._timer.phase is not _ANSWER or handler is None or not handler.changes:
            return False
        if self._after is _NEXT_REQUEST:
            self._after = AfterAnswer.CLOSE
        return self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._admission.leave(self)
        self._timer.stop()
        self._reader.close()
        if self._handler is not None:
            self._handler.abandon()
            self._handler = None
        self.flow.resume_writing()

    def pause_writing(self) -> None:
        """Stop reading as well while the peer does not read its answer."""
        self.flow.pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        if self._after is not AfterAnswer.LINGER and (self._handler is None or self._handler.wants_body):
            self.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        phase = self._timer.phase
        if phase not in _READING:
            if phase is _ANSWER:
                self._stop_reading()
            return
        try:
            self._reader.feed(data)
            self._proceed(self._reader.request)
        except PilotageError as error:
            self.refuse(error)

    # --- the present request

    def _proceed(self, request: IncomingRequest) -> None:
        """Go on with the request after more of it was received. Raises the error with which it is refused."""
        received, timer = request.received, self._timer
        if received is _PART_OF_HEADER:
            if timer.phase is not _HEAD:
                timer.enter(_HEAD, self._limits.head_time)
            return
        handler = self._handler or self._begin(request)
        if request.body:
            handler.add_body(request.body)
        if received is not _HEADER:
            self._complete(request, handler)
            return
        if timer.phase is not _BODY:
            timer.enter(_BODY, self._limits.window)
        if not handler.wants_body:
            self.flow.pause_reading()
            timer.pause_body()

    def _begin(self, request: IncomingRequest) -> RequestHandler:
        """Choose the handler of a request whose header is complete."""
        endpoint = endpoint_of(request) if self._pilot_calls else None
        if endpoint is not None:
            call = self._handler = PilotCallHandler(self, request, endpoint)
            if request.received is _HEADER:
                call.await_body()
            return call
        scope = scope_of(request, self._transport, {**self._app_state, "connection": self})
        cycle = self._handler = Cycle(self, request, scope, self._state.default_headers)
        self.start_task(cycle.run_asgi(self._app))
        return cycle

    def _complete(self, request: IncomingRequest, handler: RequestHandler) -> None:
        if not self.is_trusted:
            self._admission.mark_busy(self)
        self._timer.enter(_ANSWER, self._limits.window)
        if request.received is Received.TOO_MUCH:
            self._stop_reading()
        elif not request.keep_alive:
            self._after = AfterAnswer.CLOSE
        handler.complete()

    def _stop_reading(self) -> None:
        """Read no further, and close after the answer: data arrived before the answer was sent."""
        self._after = AfterAnswer.LINGER
        self.flow.pause_reading()

    # --- used by the handlers

    @property
    def closes_after_answer(self) -> bool:
        return self._after is not _NEXT_REQUEST or self._timer.phase in _READING

    def trust(self) -> None:
        """Record that the peer has sent a valid token."""
        if not self.is_trusted:
            self.is_trusted = True
            self._admission.mark_trusted(self)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._timer.phase in (Phase.LINGER, Phase.CLOSING) or self._transport.is_closing()

    def answer(self, payload: bytes, status: int = 200, retry_after: int = 0) -> None:
        """Send an answer in JSON. `retry_after`: seconds, 0 for none."""
        if self._transport.is_closing():
            return
        self._state.total_requests += 1
        close = self._after is not _NEXT_REQUEST
        self.write(_answer_bytes(status, payload, self._state.default_headers, retry_after, close=close))
        self._follow_answer()

    def repeat(self, sign: bytes, seconds: float) -> None:
        """Write this part of the present answer again after each `seconds`, until the answer is complete."""
        self._sign = sign, seconds
        self._timer.enter(_ANSWER, seconds)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error. If the request was not complete, the rest is not read, and the connection closes."""
        if self._timer.phase in _READING:
            self._after = AfterAnswer.LINGER
        handler = self._handler
        if handler is not None:
            handler.abandon()
            self.flow.resume_writing()
            if handler.response_started:
                self._transport.abort()
                return
        self.answer(*error_answer(error))

    def responded(self) -> None:
        """Continue after the application has written the end of its answer."""
        self._state.total_requests += 1
        if not self.is_closing():
            self._follow_answer()

    def close(self) -> None:
        """Close once everything is written.

        With unread data the connection lingers first: closing it then would send a reset in place of the answer.
        """
        if self.is_closing():
            return
        if not self.is_trusted:
            self._admission.mark_idle(self)
        if self._after is not AfterAnswer.LINGER and self._timer.phase not in _READING:
            self.close_now()
            return
        self._timer.enter(Phase.LINGER, self._limits.linger)
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()
        self.flow.resume_reading()

    def _follow_answer(self) -> None:
        """Wait for the next request, or close."""
        if self._after is not _NEXT_REQUEST:
            self.close()
            return
        self._handler = None
        self._sign = b"", 0.0
        self._reader.next_request()
        if not self.is_trusted:
            self._admission.mark_idle(self)
        self._timer.enter(_IDLE, self._limits.idle if self.is_trusted else self._limits.first_byte)
        if not self.flow.write_paused:
            self.flow.resume_reading()

    # --- used by the timer, the admission, and uvicorn

    @property
    def is_idle(self) -> bool:
        return self._timer.phase is _IDLE

    @property
    def body_size(self) -> int:
        return self._reader.request.size

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def give_sign(self) -> None:
        sign, seconds = self._sign
        if sign and not self._transport.is_closing():
            self.write(sign)
            self._timer.enter(_ANSWER, seconds)

    def close_now(self) -> None:
        self._timer.enter(Phase.CLOSING, self._limits.window)
        self._transport.close()

    def evict(self) -> None:
        self._transport.abort()

    def shutdown(self) -> None:
        """Accept no further request: the server is stopping (called by uvicorn)."""
        if self._after is _NEXT_REQUEST:
            self._after = AfterAnswer.CLOSE
        if self._timer.phase in _READING and (self._handler is None or not self._handler.starts_early):
            self._transport.close()


def _answer_bytes(
    status: int, payload: bytes, fields: Iterable[tuple[bytes, bytes]], retry_after: int, *, close: bool
) -> bytes:
    headers = b"".join([b"%s: %s\r\n" % field for field in fields])
    if retry_after:
        headers += b"retry-after: %d\r\n" % retry_after
    if close:
        headers += b"connection: close\r\n"
    return b"%scontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
        _STATUS_LINES[status],
        headers,
        len(payload),
        payload,
    )
