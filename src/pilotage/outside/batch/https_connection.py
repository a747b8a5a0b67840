"""Calls over HTTPS to a batch system that has an interface for them: one connection, which is kept between calls."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import weakref
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import NamedTuple, Protocol

from pilotage.outside.one_deadline import one_deadline

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection, which nothing can end."""

MOST_BYTES = 512 * 1024 * 1024
"""Bytes of one answer that are read."""

_PART = 1024 * 1024


class HttpReply(NamedTuple):
    """The answer to one call."""

    status: int
    reason: str
    body: bytes = b""
    length: int = 0
    """The bytes of the body, or of the file that HEAD asked for."""

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class NoConnection(OSError):
    """No connection was made, so nothing was sent."""


class BatchConnection(Protocol):
    """A way to one server. `close` may come from another thread, and ends the call that is under way."""

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """`OSError` or `http.client.HTTPException` if there is no whole answer. Nothing is sent twice."""

    def close(self) -> None: ...


class HttpsConnection:
    """A connection that is made again when the server has ended it. It follows no proxy and no redirection."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, timeout: float) -> None:
        """`timeout`: seconds for one call."""
        self._timeout = timeout
        self._connection = http.client.HTTPSConnection(
            host, port, timeout=min(timeout, CONNECT_TIMEOUT), context=context
        )
        weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        self._connect()
        try:
            self._connection.sock.settimeout(self._timeout)
            self._connection.request(method, target, body or None, dict(headers))
            # Servers that send head and body apart wait for an acknowledgement in between, which takes 40 ms.
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            with one_deadline(self._timeout) as deadline:
                deadline.watch(lambda: self._connection.sock)
                # An answer that ends with its connection has a socket of its own.
                with closing(self._connection.getresponse()) as response:
                    return self._read(response, is_head=method == "HEAD")
        except BaseException:
            self._connection.close()
            raise

    def _connect(self) -> None:
        sock = self._connection.sock
        # The server ended the connection, or said something that nobody asked for.
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                self._connection.close()
                raise NoConnection(*error.args) from error

    def _read(self, response: http.client.HTTPResponse, *, is_head: bool) -> HttpReply:
        if response.length is None and not response.chunked:
            raise http.client.HTTPException("the answer does not tell its length, so it may be cut off")
        length = response.getheader("content-length") or ""
        body = bytearray()
        while part := response.read(_PART):
            body += part
            if len(body) > MOST_BYTES:
                raise http.client.HTTPException(f"the answer has more than {MOST_BYTES} bytes")
        whole = int(length) if length.isdecimal() else len(body)
        if len(body) < whole and not is_head:
            raise http.client.IncompleteRead(bytes(body), whole - len(body))
        return HttpReply(response.status, response.reason, bytes(body), whole)
