"""HTTP to the server: kept-alive connections, a pinned certificate, and two kinds of errors (retry, or give up)."""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import urllib.parse
import urllib.request
from typing import Any, Dict, Iterator, Optional, Protocol, Tuple, Type, TypeVar, Union

from pilotage.wire.pilot import ErrorBody

from .codec import decode, encode

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


class _PinnedConnection(http.client.HTTPSConnection):
    """HTTPS that accepts only the certificate with the given fingerprint. Its issuer does not matter."""

    fingerprint = ""

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        actual = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if actual != self.fingerprint:
            self.close()
            raise ssl.SSLError(
                f"the server's certificate has the fingerprint {actual}, which is not the pinned one"
            )


class Connection:
    """One kept-alive connection, for one thread at a time."""

    def __init__(self, server: str, fingerprint: str = "", token: str = "", timeout: float = TIMEOUT) -> None:
        self._url = urllib.parse.urlsplit(server)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"not an http or https address: {server}")
        self._base = self._url.path.rstrip("/")
        self._fingerprint = fingerprint.replace(":", "").lower()
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
            response = self._send(method, self._base + path, body, headers)
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
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not isinstance(body, (bytes, type(None))):
                return self._early_answer()
            # The server may close an idle kept-alive connection: try again with a new one.
            if fresh:
                raise
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
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        proxy = _https_proxy_for(host)
        context = ssl.create_default_context()
        kind: Type[http.client.HTTPSConnection] = http.client.HTTPSConnection
        if self._fingerprint:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            kind = _PinnedConnection
        address = proxy or (host, port)
        connection = kind(address[0], address[1], timeout=self._timeout, context=context)
        if isinstance(connection, _PinnedConnection):
            connection.fingerprint = self._fingerprint
        if proxy:
            connection.set_tunnel(host, port)
        return connection


def _https_proxy_for(host: str) -> Optional[Tuple[str, Optional[int]]]:
    if urllib.request.proxy_bypass(host):
        return None
    address = urllib.request.getproxies().get("https", "")
    parts = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
    return (parts.hostname, parts.port) if parts.hostname else None


def _parse_seconds(text: Optional[str]) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _describe(error: BaseException) -> str:
    if isinstance(error, socket.timeout):
        return "timed out"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
