"""Connections: one protocol for all routes, with limits on everything that a peer sends and on what it does not read.

A pilot's call (hot.py) is answered here: between parser and writer there is no task and no ASGI event, which for a call
about a single job would cost half of its match. Every other request becomes a request-response cycle of uvicorn.

One request at a time: data that comes before the answer ends the connection with that answer (RFC 9112, 9.3.2: the
client sends it again). So nothing is queued, and a request that was smuggled behind another one is never carried out.
Trailer fields are counted and dropped. A refused request is read on for a few seconds, so that its sender sees why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from pilotage.core.errors import (
    HeaderTooLarge,
    InvalidInput,
    NotAuthenticated,
    Overloaded,
    TooLarge,
)
from pilotage.server.context import Context
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.http_messages import ONCE, answer_bytes, check_framing, reason
from pilotage.server.http.pilot_endpoints import HANDLERS, Hot, PilotCall, bearer, pilot_is_known, refusal
from pilotage.server.http.request_cycle import Cycle
from pilotage.server.http.timed_connection import Phase, TimedConnection
from pilotage.store.writer.replies import LoopReply

log = logging.getLogger(__name__)

_HOT = {path.encode(): hot for path, hot in HANDLERS.items()}


def serving(context: Context, admission: Admission, limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The protocol of a server's connections, for uvicorn's `Config`."""
    return cast("type[asyncio.Protocol]", partial(HttpConnection, context, admission, limits))


class HttpConnection(TimedConnection):
    """One connection."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        limits: ConnectionLimits,
        *,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(admission, limits, _loop or asyncio.get_running_loop())
        if not config.loaded:
            config.load()
        self._context = context
        self._state = server_state
        self._app_state = app_state
        self._app = config.loaded_app
        self._parser: Any = httptools.HttpRequestParser(self)
        # What follows a request is looked at by `data_received`; it is no mistake of that request.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._last = False
        """The connection ends with the answer to this request."""
        self._next()

    def _next(self) -> None:
        """Be ready for another request."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._once: dict[bytes, bytes] = {}
        """Those of them on which the meaning of the request depends."""
        self._url = b""
        self._head = 0
        """Bytes that came since the request, or the last piece of its body: of its header, or of trailers."""
        self._head_done = False
        self._asked = False
        """The request is whole, or refused."""
        self._unread = False
        """Something follows the request that nobody reads."""
        self._hot: Hot | None = None
        self._cycle: Cycle | None = None
        self._token = ""
        self._waits_to_send = False
        self._checked = False
        """The token was looked up, or is being looked up, before more of the body is taken."""
        self._body: bytes | bytearray = b""
        self._size = self._mark = 0

    @property
    def ends_with_answer(self) -> bool:
        return self._last or not self._asked

    # --- asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._open(transport):
            self._asked = self._last = True
            self._phase = Phase.LINGER
            self._tell(*refusal(Overloaded("the server has too many connections", retry_after=5.0)))
            return
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._lost()
        self._disconnect()
        # They hold each other.
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._asked:
            if self._phase is not Phase.LINGER:
                self._end_with_answer()
            return
        self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # What else could be spoken after the request is not.
            self._end_with_answer()
        except httptools.HttpParserError as error:
            self._unreadable(error)
        else:
            self._after_data()

    def _unreadable(self, error: httptools.HttpParserError) -> None:
        """The request, or what follows it, is no HTTP, or a callback has refused it."""
        if self._asked:
            self._end_with_answer()
        else:
            self._refuse(reason(error))

    def _after_data(self) -> None:
        """The parser has taken what came: a request that is not whole has a time, and a limit."""
        if self._asked:
            return
        if self._head > self._limits.head:
            self._refuse(self._head_too_large())
        elif self._head_done:
            if self._phase is not Phase.BODY:
                self._enter(Phase.BODY, self._limits.window)
        elif self._phase is not Phase.HEAD:
            self._enter(Phase.HEAD, self._limits.head_time)

    def pause_writing(self) -> None:
        """The peer does not read: nothing more is taken from it either."""
        self._flow.pause_writing()
        self._flow.pause_reading()

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        if len(self._body) <= HIGH_WATER_LIMIT and not self._unread:
            self._flow.resume_reading()

    # --- uvicorn's and the admission's

    def shutdown(self) -> None:
        """The server ends: no request is taken any more."""
        self._last = True
        if not self._asked and self._cycle is None:
            self._transport.close()

    # --- the parser's

    def on_message_begin(self) -> None:
        if self._asked:
            self._end_with_answer()

    def on_url(self, url: bytes) -> None:
        if not self._asked:
            self._url += url
            if len(self._url) > self._limits.request_line:
                raise HeaderTooLarge(
                    f"the address of the request has more than {self._limits.request_line} bytes"
                )

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._asked or self._head_done:
            return
        name = name.lower()
        self._fields.append((name, value))
        if name in ONCE:
            if name in self._once:
                raise InvalidInput(f"the header of the request has {name.decode()} twice")
            self._once[name] = value
        if len(self._fields) > self._limits.fields:
            raise HeaderTooLarge(f"the header of the request has more than {self._limits.fields} fields")

    def _head_too_large(self) -> HeaderTooLarge:
        return HeaderTooLarge(f"the header of the request has more than {self._limits.head} bytes")

    def on_headers_complete(self) -> None:
        if self._asked:
            return
        self._head_done = True
        limits, once = self._limits, self._once
        if self._head > limits.head:
            # Part of that may be the body.
            head = sum([len(name) + len(value) + 4 for name, value in self._fields], len(self._url))
            if head > limits.head:
                raise self._head_too_large()
        self._head = 0
        version: str = self._parser.get_http_version()
        check_framing(version, once)
        length = once.get(b"content-length")
        size = int(length) if length else 0
        self._token = bearer(once.get(b"authorization", b""))
        self._waits_to_send = b"expect" in once and once[b"expect"].lower() == b"100-continue"
        if self._parser.should_upgrade() and (size or b"transfer-encoding" in once):
            raise InvalidInput("a request with a body cannot ask for another protocol")
        hot = _HOT.get(self._url)
        if hot is not None and self._parser.get_method() == b"POST":
            self._hot = hot
            self._begin_call(hot, size)
        else:
            self._begin_cycle(version)

    def on_body(self, body: bytes) -> None:
        if self._asked:
            return
        self._size += len(body)
        self._head = 0
        if self._hot is not None:
            if self._size > self._hot.most:
                raise TooLarge(f"the body has more than {self._hot.most} bytes")
            if self._size > self._limits.body_without_token:
                self._check_token(self._hot)
            if not self._body:
                self._body = body
            else:
                if isinstance(self._body, bytes):
                    self._body = bytearray(self._body)
                self._body += body
        elif self._cycle is not None and not self._cycle.response_complete:
            self._cycle.body += body
            if len(self._cycle.body) > HIGH_WATER_LIMIT:
                self._pause_body()
            self._cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._asked:
            return
        self._asked = True
        if not self._trusted:
            self._admission.busy(self)
        self._enter(Phase.ANSWER, self._limits.window)
        if not self._parser.should_keep_alive():
            self._last = True
        if self._hot is not None:
            self._carry_out(self._hot)
        elif self._cycle is not None:
            self._cycle.more_body = False
            self._cycle.message_event.set()

    # --- pilots' calls

    def _begin_call(self, hot: Hot, size: int) -> None:
        if size > hot.most:
            raise TooLarge(f"the body has more than {hot.most} bytes")
        if size > self._limits.body_without_token:
            self._check_token(hot)
        if self._waits_to_send and not self._flow.read_paused:
            self._tell_to_go_on()

    def _tell_to_go_on(self) -> None:
        self._waits_to_send = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_token(self, hot: Hot) -> None:
        """A large body is taken only from a pilot that is known."""
        if self._checked or not hot.needs_token:
            return
        self._checked = True
        self._pause_body()
        self._begin_task(self._look_up_token())

    async def _look_up_token(self) -> None:
        """The connection takes no other request meanwhile: reading is paused."""
        error: Exception | None = None
        try:
            if not await pilot_is_known(self._context, self._token):
                error = NotAuthenticated("this pilot's token is not known", hint="enrol first")
        except Exception as trouble:
            error = trouble
        if self._asked or self._parser is None:
            return
        if error is not None:
            self._refuse(error)
            return
        self.trust()
        if self._waits_to_send:
            self._tell_to_go_on()
        self._flow.resume_reading()

    def _carry_out(self, hot: Hot) -> None:
        try:
            call = hot.handler(self._context, self._token, self._body)
            self._context.writer.submit(call.request, LoopReply(self._loop, partial(self._answered, call)))
        except Exception as error:
            # Not before the parser has looked at what came with it.
            self._loop.call_soon(self._refuse, error)

    def _answered(self, call: PilotCall, result: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                if not self._trusted and call.authenticated:
                    self.trust()
                self._tell(200, call.told(result))
                return
        except Exception as unexpected:
            error = unexpected
        self._refuse(error)

    # --- everything else

    def _begin_cycle(self, version: str) -> None:
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
            "scheme": "http",
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._fields,
            "state": {**self._app_state, "connection": self},
        }
        keep_alive = version == "1.1" and self._parser.should_keep_alive()
        self._cycle = Cycle(self, scope, self._flow, self._state, self._waits_to_send, keep_alive)
        self._begin_task(self._cycle.run_asgi(self._app))

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def responded(self) -> None:
        """A cycle has written the end of its answer."""
        self._state.total_requests += 1
        if self.is_closing():
            return
        if self._last:
            self.end()
        else:
            self._wait_for_next()

    def _disconnect(self) -> None:
        """The application hears that nobody waits for its answer any more."""
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._flow.resume_writing()

    # --- answers

    def _refuse(self, error: BaseException) -> None:
        if not self._asked:
            # The rest of the request is not read.
            self._asked = self._last = self._unread = True
            self._fields, self._once, self._body = [], {}, b""
        if self._cycle is not None:
            self._disconnect()
            if self._cycle.response_started:
                self._transport.abort()
                return
        self._tell(*refusal(error))

    def _tell(self, status: int, payload: bytes, retry_after: int = 0) -> None:
        if self._transport.is_closing():
            return
        self._state.total_requests += 1
        fields = self._state.default_headers
        self.write(answer_bytes(status, payload, fields, retry_after, last=self._last))
        if self._last:
            self.end()
        else:
            self._wait_for_next()

    def _wait_for_next(self) -> None:
        self._next()
        if not self._trusted:
            self._admission.idle(self)
        self._enter(Phase.IDLE, self._limits.idle if self._trusted else self._limits.first_byte)
        if not self._flow.write_paused:
            self._flow.resume_reading()

    def _end_with_answer(self) -> None:
        """Something came before the answer: the connection ends with that, and nothing more is read."""
        self._last = self._unread = True
        if self._phase is not Phase.LINGER:
            self._flow.pause_reading()

    def end(self) -> None:
        """Close when all is written. Closed with data unread, the peer would get a reset in place of the answer."""
        if self.is_closing():
            return
        if not self._trusted:
            self._admission.idle(self)
        if self._unread or not self._asked:
            self._asked = True
            self._enter(Phase.LINGER, self._limits.linger)
            self._transport.write_eof()
            self._flow.resume_reading()
        else:
            self._close()
