"""The protocol of all connections: parses requests and limits everything that a peer sends or leaves unread.

Pilots' calls are answered by `pilot_protocol`. Every other request becomes a request-response cycle of uvicorn, which
the application answers. Trailer fields are counted against the limit of the header and dropped.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from pilotage.core.errors import HeaderTooLarge, InvalidInput, Overloaded
from pilotage.server.context import Context
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.http_messages import UNIQUE_FIELDS, check_framing, parser_cause
from pilotage.server.http.pilot_endpoints import ENDPOINTS, bearer, error_answer
from pilotage.server.http.pilot_protocol import PilotProtocol
from pilotage.server.http.request_cycle import Cycle
from pilotage.server.http.timed_connection import Phase
from pilotage.server.http.tls_handshake import TlsHandshake

_ENDPOINTS = {path.encode(): endpoint for path, endpoint in ENDPOINTS.items()}


def http_protocol_factory(
    context: Context, admission: Admission, limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> type[asyncio.Protocol]:
    """The protocol class of a server's connections, for uvicorn's `Config`. With `tls`, they begin with TLS."""
    plain = partial(HttpConnection, context, admission, limits)
    if tls is None:
        return cast("type[asyncio.Protocol]", plain)

    def encrypted(*, server_state: ServerState, **options: Any) -> TlsHandshake:
        make_connection = partial(plain, server_state=server_state, **options)
        return TlsHandshake(tls, admission, limits, server_state, make_connection)

    return cast("type[asyncio.Protocol]", encrypted)


class HttpConnection(PilotProtocol):
    """One connection, from its first byte to its end."""

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
        super().__init__(context, admission, limits, server_state, _loop or asyncio.get_running_loop())
        if not config.loaded:
            config.load()
        self._app_state = app_state
        self._app = config.loaded_app
        self._parser: Any = httptools.HttpRequestParser(self)
        # `data_received` handles data that follows a request; it does not make that request invalid.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._admit(transport):
            self._request_over = self._close_after_answer = True
            self._phase = Phase.LINGER
            error = Overloaded("the server has too many connections", retry_after=5.0)
            self._send_answer(*error_answer(error))
            return
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._release()
        self._disconnect_cycle()
        # The parser refers to this object: break the cycle.
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._request_over:
            if self._phase is not Phase.LINGER:
                self._close_after_early_data()
            return
        self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Upgrades to other protocols are not supported.
            self._close_after_early_data()
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
        else:
            self._limit_incomplete_request()

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        """Handle data that is not HTTP, or that a callback of the parser has refused."""
        if self._request_over:
            self._close_after_early_data()
        else:
            self._refuse(parser_cause(error))

    def _limit_incomplete_request(self) -> None:
        """Apply the limits of size and time to a request of which more data is expected."""
        if self._request_over:
            return
        if self._header_bytes > self._limits.head:
            self._refuse(self._header_too_large())
        elif self._header_complete:
            if self._phase is not Phase.BODY:
                self._enter(Phase.BODY, self._limits.window)
        elif self._phase is not Phase.HEAD:
            self._enter(Phase.HEAD, self._limits.head_time)

    def _header_too_large(self) -> HeaderTooLarge:
        return HeaderTooLarge(f"the header of the request has more than {self._limits.head} bytes")

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._request_over:
            self._close_after_early_data()

    def on_url(self, url: bytes) -> None:
        if not self._request_over:
            self._url += url
            if len(self._url) > self._limits.request_line:
                raise HeaderTooLarge(
                    f"the address of the request has more than {self._limits.request_line} bytes"
                )

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request_over or self._header_complete:
            return
        name = name.lower()
        self._fields.append((name, value))
        if name in UNIQUE_FIELDS:
            if name in self._unique_fields:
                raise InvalidInput(f"the header of the request has {name.decode()} twice")
            self._unique_fields[name] = value
        if len(self._fields) > self._limits.fields:
            raise HeaderTooLarge(f"the header of the request has more than {self._limits.fields} fields")

    def on_headers_complete(self) -> None:
        if self._request_over:
            return
        self._header_complete = True
        self._check_header_size()
        self._header_bytes = 0
        fields = self._unique_fields
        version: str = self._parser.get_http_version()
        check_framing(version, fields)
        length = fields.get(b"content-length")
        size = int(length) if length else 0
        self._token = bearer(fields.get(b"authorization", b""))
        self._expects_continue = b"expect" in fields and fields[b"expect"].lower() == b"100-continue"
        if self._parser.should_upgrade() and (size or b"transfer-encoding" in fields):
            raise InvalidInput("a request with a body cannot ask for another protocol")
        endpoint = _ENDPOINTS.get(self._url)
        if endpoint is not None and self._parser.get_method() == b"POST":
            self._begin_call(endpoint, size)
        else:
            self._begin_cycle(version)

    def _check_header_size(self) -> None:
        limit = self._limits.head
        if self._header_bytes > limit:
            # The bytes received so far may include a part of the body: count the header alone.
            size = sum([len(name) + len(value) + 4 for name, value in self._fields], len(self._url))
            if size > limit:
                raise self._header_too_large()

    def on_body(self, body: bytes) -> None:
        if self._request_over:
            return
        self._size += len(body)
        self._header_bytes = 0
        if self._endpoint is not None:
            self._add_to_body(self._endpoint, body)
        elif self._cycle is not None and not self._cycle.response_complete:
            self._cycle.body += body
            if len(self._cycle.body) > HIGH_WATER_LIMIT:
                self._pause_body()
            self._cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._request_over:
            return
        self._request_over = True
        if not self._trusted:
            self._admission.mark_busy(self)
        self._enter(Phase.ANSWER, self._limits.window)
        if not self._parser.should_keep_alive():
            self._close_after_answer = True
        if self._endpoint is not None:
            self._submit_call(self._endpoint)
        elif self._cycle is not None:
            self._cycle.more_body = False
            self._cycle.message_event.set()

    # --- requests that the application answers

    def _begin_cycle(self, version: str) -> None:
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
            "scheme": "https" if self._transport.get_extra_info("sslcontext") else "http",
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._fields,
            "state": {**self._app_state, "connection": self},
        }
        keep_alive = version == "1.1" and self._parser.should_keep_alive()
        self._cycle = Cycle(self, scope, self._flow, self._state, self._expects_continue, keep_alive)
        self._start_task(self._cycle.run_asgi(self._app))
