"""Reads HTTP requests, one at a time: parses them, limits their size, and refuses requests with two meanings.

Trailer fields are counted against the limit of the header and dropped.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

import httptools

from pilotage.core.errors import HeaderTooLarge, InvalidInput, PilotageError
from pilotage.server.http.connection_limits import ConnectionLimits

UNIQUE_FIELDS = frozenset({b"host", b"authorization", b"content-length", b"transfer-encoding", b"expect"})
"""Header fields that may appear once only: with two of them, readers could disagree which one counts."""
_VERSIONS = ("1.1", "1.0")
NOT_HTTP = "this is not an HTTP request that the server can read"


class Received(Enum):
    """How much of a request has been received."""

    PART_OF_HEADER = "a part of the header, or nothing"
    HEADER = "the header, and perhaps a part of the body"
    ALL = "the request"
    TOO_MUCH = "the request and further data, which is not read"


# Looked up once: an attribute of an enumeration is dear where every request asks for it.
_PART_OF_HEADER, _HEADER, _ALL = Received.PART_OF_HEADER, Received.HEADER, Received.ALL


class Target(NamedTuple):
    """The URL of a request, without scheme and host."""

    path: str
    raw_path: bytes
    """With its escapes."""
    query: bytes


class IncomingRequest:
    """A request that is being read."""

    __slots__ = (
        *("body", "fields", "keep_alive", "method", "received"),
        *("size", "unique_fields", "url", "version"),
    )

    def __init__(self) -> None:
        self.received = _PART_OF_HEADER
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.unique_fields: dict[bytes, bytes] = {}
        """Header fields that must not be repeated, because they decide how the request is read."""
        self.method: bytes
        self.version: str
        self.keep_alive: bool
        self.body: bytes | bytearray = b""
        """The part of the body that was received since the last `feed`."""
        self.size = 0
        """Bytes of the body received so far."""

    @property
    def declared_size(self) -> int:
        """Bytes of the body as declared; 0: not declared."""
        length = self.unique_fields.get(b"content-length")
        return int(length) if length else 0

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for "100 Continue" before it sends the body."""
        return self.unique_fields.get(b"expect", b"").lower() == b"100-continue"

    def target(self) -> Target:
        """The parsed URL. Raises `InvalidInput` if the URL has no path."""
        try:
            url = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:
            raise InvalidInput(NOT_HTTP) from None
        if url.path is None or not url.path.isascii():
            raise InvalidInput(NOT_HTTP)
        path = url.path.decode("ascii")
        return Target(unquote(path) if "%" in path else path, url.path, url.query or b"")


class RequestReader:
    """The parser of a connection, with the request that is being read. The `on_` methods are called by the parser."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.request = IncomingRequest()
        self._header_bytes = 0
        """Bytes received since the request began, or since the last piece of its body: header or trailer."""
        self._parser: Any = httptools.HttpRequestParser(self)
        # Data that follows a request does not make that request invalid.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def close(self) -> None:
        """Break the cycle of references: the parser refers to this object."""
        self._parser = None

    def next_request(self) -> None:
        """Forget the last request, before the next one is read."""
        self.request = IncomingRequest()
        self._header_bytes = 0

    def feed(self, data: bytes) -> None:
        """Read on. Raises the error with which the request is refused."""
        self._header_bytes += len(data)
        request = self.request
        request.body = b""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            # Upgrades to other protocols are not supported.
            if request.received is not _ALL:
                self._raise_cause(error)
            request.received = Received.TOO_MUCH
            return
        if self._header_bytes > self._limits.head and request.received is not _ALL:
            raise self._header_too_large()

    def _raise_cause(self, error: Exception) -> NoReturn:
        """Raise the error of a callback; if none did, an error that the data is not HTTP."""
        cause = error.__context__
        raise cause if isinstance(cause, PilotageError) else InvalidInput(NOT_HTTP)

    def _header_too_large(self) -> HeaderTooLarge:
        return HeaderTooLarge(f"the header of the request has more than {self._limits.head} bytes")

    def on_message_begin(self) -> None:
        if self.request.received is _ALL:
            raise InvalidInput("a further request came before the answer")

    def on_url(self, url: bytes) -> None:
        request = self.request
        request.url += url
        if len(request.url) > self._limits.request_line:
            raise HeaderTooLarge(
                f"the address of the request has more than {self._limits.request_line} bytes"
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self.request
        if request.received is not _PART_OF_HEADER:
            return
        name = name.lower()
        request.fields.append((name, value))
        if name in UNIQUE_FIELDS:
            if name in request.unique_fields:
                raise InvalidInput(f"the header of the request has {name.decode()} twice")
            request.unique_fields[name] = value
        if len(request.fields) > self._limits.fields:
            raise HeaderTooLarge(f"the header of the request has more than {self._limits.fields} fields")

    def on_headers_complete(self) -> None:
        request, parser = self.request, self._parser
        request.received = _HEADER
        if self._header_bytes > self._limits.head:
            self._check_header_size()
        self._header_bytes = 0
        request.method, request.version = parser.get_method(), parser.get_http_version()
        self._check_framing()
        request.keep_alive = parser.should_keep_alive()

    def _check_header_size(self) -> None:
        """Count the header alone: the bytes received so far may include a part of the body."""
        request = self.request
        size = sum([len(name) + len(value) + 4 for name, value in request.fields], len(request.url))
        if size > self._limits.head:
            raise self._header_too_large()

    def _check_framing(self) -> None:
        """Raise `InvalidInput` if the meaning of the request or the end of its body is ambiguous."""
        version, fields = self.request.version, self.request.unique_fields
        if version not in _VERSIONS:
            raise InvalidInput(f"HTTP/{version} is not supported")
        if b"host" not in fields and version == "1.1":
            raise InvalidInput("the header of the request has no Host")
        encoding = fields.get(b"transfer-encoding")
        if encoding is not None and (version != "1.1" or encoding.lower() != b"chunked"):
            raise InvalidInput("the only supported transfer encoding is chunked, with HTTP/1.1")
        if self._parser.should_upgrade() and (encoding is not None or self.request.declared_size):
            raise InvalidInput("a request with a body cannot ask for another protocol")

    def on_body(self, body: bytes) -> None:
        request = self.request
        request.size += len(body)
        self._header_bytes = 0
        if not request.body:
            request.body = body
        else:
            if isinstance(request.body, bytes):
                request.body = bytearray(request.body)
            request.body += body

    def on_message_complete(self) -> None:
        self.request.received = _ALL
