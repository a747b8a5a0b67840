"""HTTP to the server: kept-alive connections, pinned certificates, and two kinds of errors (retry, or give up)."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.parse
from typing import Any, Dict, Iterator, Optional, Protocol, Type, TypeVar, Union

from pilotage.wire.pilot import ErrorBody
from pilotage.wire.proxy import find_proxy
from pilotage.wire.server_trust import CERTIFICATES_HEADER, SERVERS_HEADER, ServerTrust
from pilotage.wire.tls import CertificateMismatch, describe_refusal, refused_certificate

from .codec import decode, encode
from .servers import Servers

T = TypeVar("T")


class Readable(Protocol):
    """A request body that is read piece by piece while it is sent."""

    def read(self, most: int = ...) -> bytes: ...


Body = Union[bytes, Readable, None]

TIMEOUT = 30.0
CONNECT_TIMEOUT = 15.0
"""Seconds until a server that does not answer is left for another one."""
FORBIDDEN = 403
_CHUNK = 1 << 16


class ServerUnavailable(Exception):
    """No conclusive answer: the same request may be sent again."""

    def __init__(self, reason: str, retry_after: float = 0.0, *, untrusted: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.untrusted = untrusted
        """The server's certificate was refused."""


class RequestRefused(Exception):
    """The server refused the request, and would refuse it again."""

    def __init__(self, status: int, error: ErrorBody) -> None:
        super().__init__(
            f"{status} {error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
        )
        self.status = status
        self.error = error

    @property
    def superseded(self) -> bool:
        return self.status in (401, 410) or self.error.code == "superseded"


class ServerConnection:
    """One kept-alive connection, for one thread at a time."""

    def __init__(
        self,
        server: Union[str, Servers],
        trust: Optional[ServerTrust] = None,
        token: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self._servers = (
            Servers([server], pinned=bool(trust and trust.fingerprints))
            if isinstance(server, str)
            else server
        )
        self._address = ""
        """The server that the connection is to."""
        self._base = ""
        self._is_tls = False
        self._trust = trust or ServerTrust()
        self._timeout = timeout
        self._connection: Optional[http.client.HTTPConnection] = None
        self.token = token

    def post(self, path: str, body: Any, kind: Type[T]) -> T:
        """Post a wire dataclass and decode the answer as `kind`. Raises ServerUnavailable or RequestRefused."""
        data = self.request("POST", path, encode(body), {"Content-Type": "application/json"})
        try:
            return decode(kind, data)
        except (ValueError, TypeError) as error:
            raise ServerUnavailable(f"unreadable answer: {error}") from None

    def request(self, method: str, path: str, body: Body, headers: Dict[str, str]) -> bytes:
        """Send a request and return the body of a 2xx answer. Raises ServerUnavailable or RequestRefused."""
        response = self._request(method, path, body, headers)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerUnavailable(_describe(error)) from None

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield the body of a 2xx answer to GET in pieces. Raises ServerUnavailable or RequestRefused."""
        response = self._request("GET", path, None, {})
        done = False
        try:
            while True:
                piece = response.read(_CHUNK)
                if not piece:
                    done = True
                    return
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnavailable(_describe(error)) from None
        finally:
            if not done:
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(
        self, method: str, path: str, body: Body, headers: Dict[str, str]
    ) -> http.client.HTTPResponse:
        if self.token:
            headers = {**headers, "Authorization": f"Bearer {self.token}"}
        try:
            response = self._send(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._servers.leave(self._address)
            untrusted = refused_certificate(error) is not None
            raise ServerUnavailable(_describe(error), untrusted=untrusted) from None
        except BaseException:  # the body could not be read, and a part of it was sent
            self.close()
            raise
        if 200 <= response.status < 300:
            return response
        raise self._error_from(response)

    def _send(self, method: str, path: str, body: Body, headers: Dict[str, str]) -> http.client.HTTPResponse:
        fresh = self._connection is None
        if self._connection is not None and self._address != self._servers.current:
            self.close()  # another thread has found that its server does not answer
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.request(method, self._base + path, body, headers)
            response = self._connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not isinstance(body, (bytes, type(None))):
                return self._early_answer()
            # The server may close an idle kept-alive connection: try again with a new one.
            if fresh:
                raise
        else:
            self._learn(response)
            return response
        self.close()
        return self._send(method, path, body, headers)

    def _learn(self, response: http.client.HTTPResponse) -> None:
        """Take over the certificates and addresses that the server announces."""
        self._servers.note_answer(self._address)
        certificates, servers = response.getheader(CERTIFICATES_HEADER), response.getheader(SERVERS_HEADER)
        if certificates and self._is_tls:
            self._trust.learn(certificates)
        if servers:
            self._servers.learn(servers)

    def _early_answer(self) -> http.client.HTTPResponse:
        """The answer that the server sent before it stopped reading a long body. Raises like `getresponse`."""
        assert self._connection is not None
        response = self._connection.getresponse()
        # The rest of the body was not sent, so the connection cannot be used for another request.
        response.will_close = True
        return response

    def _error_from(self, response: http.client.HTTPResponse) -> Exception:
        try:
            data = response.read(_CHUNK)
        except (OSError, http.client.HTTPException):
            data = b""
        if response.will_close or not response.isclosed():
            self.close()
        try:
            error = decode(ErrorBody, data)
        except (ValueError, TypeError):
            error = ErrorBody("", response.reason or "")
        wait = _parse_seconds(response.getheader("Retry-After")) or error.retry_after
        if response.status == 429 or response.status >= 500 or response.status == 408:
            if response.status >= 500:
                self.close()
                self._servers.leave(self._address)
            return ServerUnavailable(f"{response.status} {error.code} {error.message}".strip(), wait)
        return RequestRefused(response.status, error)

    def _connect(self) -> http.client.HTTPConnection:
        """A new connection to the server in use, or to its proxy.

        A server with another certificate is asked for the certificates of the pins, by name.
        """
        self._address = self._servers.current
        for asked in ("", *self._trust.fingerprints):
            connection = self._prepare(urllib.parse.urlsplit(self._address), asked)
            try:
                connection.connect()
                connection.sock.settimeout(self._timeout)
                return connection
            except CertificateMismatch as error:
                connection.close()
                mismatch = error
            except BaseException:
                connection.close()
                raise
        raise mismatch

    def _prepare(self, url: urllib.parse.SplitResult, asked: str) -> http.client.HTTPConnection:
        """A connection that is not open yet. TLS passes through a proxy, which never sees the token.

        Only a loopback address has no TLS.
        """
        host, port, timeout = url.hostname or "", url.port, min(self._timeout, CONNECT_TIMEOUT)
        self._is_tls, self._base = url.scheme == "https", url.path.rstrip("/")
        if not self._is_tls:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        proxy = find_proxy(url.scheme, host)
        context = self._trust.make_context(asked)
        if proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        connection = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=timeout, context=context)
        connection.set_tunnel(host, port or 443, proxy.headers)
        return connection


def _parse_seconds(text: Optional[str]) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _describe(error: BaseException) -> str:
    refused = refused_certificate(error)
    if refused is not None:
        return describe_refusal(refused, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    if isinstance(error, socket.timeout):
        return "timed out"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
