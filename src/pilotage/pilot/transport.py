"""HTTP to the server: kept-alive connections, pinned certificates, and two kinds of errors (retry, or give up)."""

from __future__ import annotations

import http.client
import socket
import urllib.parse
from typing import Any, Dict, Iterator, Optional, Protocol, Type, TypeVar, Union

from pilotage.wire.pilot import ErrorBody
from pilotage.wire.server_trust import CERTIFICATES_HEADER, ServerTrust

from .codec import decode, encode
from .proxy import find_proxy

T = TypeVar("T")


class Readable(Protocol):
    """A request body that is read piece by piece while it is sent."""

    def read(self, most: int = ...) -> bytes: ...


Body = Union[bytes, Readable, None]

TIMEOUT = 30.0
FORBIDDEN = 403
_CHUNK = 1 << 16


class ServerUnavailable(Exception):
    """No conclusive answer: the same request may be sent again."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


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


class Connection:
    """One kept-alive connection, for one thread at a time."""

    def __init__(
        self,
        server: str,
        trust: Optional[ServerTrust] = None,
        token: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self._url = urllib.parse.urlsplit(server)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"not an http or https address: {server}")
        self._base = self._url.path.rstrip("/")
        self._trust = trust or ServerTrust()
        self._proxy_headers: Dict[str, str] = {}
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
            raise ServerUnavailable(_describe(error)) from None
        except BaseException:  # the body could not be read, and a part of it was sent
            self.close()
            raise
        if 200 <= response.status < 300:
            return response
        raise self._error_from(response)

    def _send(self, method: str, path: str, body: Body, headers: Dict[str, str]) -> http.client.HTTPResponse:
        fresh = self._connection is None
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.request(method, self._base + path, body, {**headers, **self._proxy_headers})
            response = self._connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not isinstance(body, (bytes, type(None))):
                return self._early_answer()
            # The server may close an idle kept-alive connection: try again with a new one.
            if fresh:
                raise
        else:
            announced = response.getheader(CERTIFICATES_HEADER)
            if announced and self._url.scheme == "https":
                self._trust.learn(announced)
            return response
        self.close()
        return self._send(method, path, body, headers)

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
            return ServerUnavailable(f"{response.status} {error.code} {error.message}".strip(), wait)
        return RequestRefused(response.status, error)

    def _connect(self) -> http.client.HTTPConnection:
        """A connection to the server or its proxy. TLS passes through a proxy, which never sees the token."""
        host, port = self._url.hostname or "", self._url.port
        proxy = find_proxy(self._url.scheme, host)
        if self._url.scheme == "http":
            if proxy is None:
                return http.client.HTTPConnection(host, port, timeout=self._timeout)
            self._base = f"http://{self._url.netloc}{self._url.path.rstrip('/')}"
            self._proxy_headers = proxy.headers
            return http.client.HTTPConnection(proxy.host, proxy.port, timeout=self._timeout)
        context = self._trust.make_context()
        if proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        connection = http.client.HTTPSConnection(
            proxy.host, proxy.port, timeout=self._timeout, context=context
        )
        connection.set_tunnel(host, port or 443, proxy.headers)
        return connection


def _parse_seconds(text: Optional[str]) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _describe(error: BaseException) -> str:
    if isinstance(error, socket.timeout):
        return "timed out"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
