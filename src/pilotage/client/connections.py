"""Connections to servers: kept alive, through proxies, with bodies that stream in both directions."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pilotage.wire.proxy import find_proxy

if TYPE_CHECKING:
    import ssl
    from email.message import Message

CONNECT_TIMEOUT = 10.0
MAX_CONNECTIONS = 16
MAX_IDLE = 8
KEEP_ALIVE = 5.0
"""Seconds for which an idle connection is used again: the server, or a firewall, may have forgotten older ones."""
CHUNK = 64 * 1024


class NotConnected(Exception):
    """There is no connection, so nothing was sent."""


class NoAnswer(Exception):
    """A connection broke: the request may have reached the server, and its answer is missing or incomplete."""


class HttpRequest(NamedTuple):
    """A request to one server. An iterator as body needs its size among the headers."""

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    body: bytes | Iterator[bytes] | None
    timeout: float
    """Seconds without data after which it fails."""


class HttpAnswer(NamedTuple):
    """A complete answer."""

    status: int
    reason: str
    headers: Message
    content: bytes


class StreamedAnswer:
    """An answer whose body is read piece by piece. It holds its connection until it is closed."""

    def __init__(
        self, pool: ConnectionPool, url: str, connection: HTTPConnection, response: HTTPResponse
    ) -> None:
        self._pool = pool
        self._url = url
        self._connection = connection
        self._response: HTTPResponse | None = response
        self.status = response.status
        self.reason = response.reason
        self.headers: Message = response.headers

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the body, or all that are left; b"" at its end. Raises NoAnswer if it breaks off."""
        assert self._response is not None
        with _told_as_no_answer():
            piece = self._response.read(None if size < 0 else size)
        if not piece and size and self._response.length:
            raise NoAnswer("the connection ended before the answer did")
        return piece

    def pieces(self) -> Iterator[bytes]:
        """The body in pieces."""
        while piece := self.read(CHUNK):
            yield piece

    def whole(self) -> HttpAnswer:
        """The answer with its whole body; the connection is free again."""
        try:
            return HttpAnswer(self.status, self.reason, self.headers, self.read())
        finally:
            self.close()

    def close(self) -> None:
        """Return the connection to the pool if the body was read to its end."""
        response, self._response = self._response, None
        if response is not None:
            reusable = response.isclosed() and not response.will_close
            response.close()
            self._pool.take_back(self._url, self._connection, reusable=reusable)


class ConnectionPool:
    """Connections to the servers of one pool; thread-safe."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        """`context`: checks the certificates of servers; only addresses with https need it."""
        self._context = context
        self._idle: dict[str, list[tuple[HTTPConnection, float]]] = {}
        """Connections with the beginning of their idleness, by address of the server."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def send(self, url: str, request: HttpRequest) -> StreamedAnswer:
        """Send a request to the server at `url`, and return the beginning of its answer.

        Raises NotConnected or NoAnswer. Errors of an iterator that is the body pass through.
        """
        if not self._slots.acquire(timeout=request.timeout):
            raise NotConnected(f"all {MAX_CONNECTIONS} connections are in use")
        connection = None
        try:
            connection = self._idle_connection(url) or _connect(url, self._context, request.timeout)
            connection.sock.settimeout(request.timeout)
            return StreamedAnswer(self, url, connection, _exchange(connection, url, request))
        except BaseException:
            if connection is not None:
                connection.close()
            self._slots.release()
            raise

    def take_back(self, url: str, connection: HTTPConnection, *, reusable: bool) -> None:
        """Take a connection whose answer is closed."""
        with self._lock:
            kept = self._idle.setdefault(url, [])
            reusable = reusable and len(kept) < MAX_IDLE
            if reusable:
                kept.append((connection, time.monotonic()))
        if not reusable:
            connection.close()
        self._slots.release()

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection, _ in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _idle_connection(self, url: str) -> HTTPConnection | None:
        """The connection that was used last, if the server has not closed it."""
        while True:
            with self._lock:
                kept = self._idle.get(url)
                if not kept:
                    return None
                connection, since = kept.pop()
            if time.monotonic() - since < KEEP_ALIVE and not _is_readable(connection):
                return connection
            connection.close()


def check_url(url: str) -> None:
    """Raise ValueError for an address that has no host, or no number as port."""
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it names no host")


def _connect(url: str, context: ssl.SSLContext | None, timeout: float) -> HTTPConnection:
    parts = urlsplit(url)
    host, connect_timeout = parts.hostname or "", min(timeout, CONNECT_TIMEOUT)
    try:
        if parts.scheme != "https":
            connection = HTTPConnection(host, parts.port or 80, timeout=connect_timeout)
        elif proxy := find_proxy("https", host) or find_proxy("all", host):
            connection = HTTPSConnection(proxy.host, proxy.port, timeout=connect_timeout, context=context)
            connection.set_tunnel(host, parts.port or 443, proxy.headers)
        else:
            connection = HTTPSConnection(host, parts.port or 443, timeout=connect_timeout, context=context)
    except OSError as trouble:
        raise NotConnected(_words(trouble)) from trouble
    try:
        connection.connect()
    except BaseException as trouble:
        connection.close()
        if isinstance(trouble, (OSError, HTTPException, UnicodeError)):
            raise NotConnected(_words(trouble)) from trouble
        raise
    return connection


def _exchange(connection: HTTPConnection, url: str, request: HttpRequest) -> HTTPResponse:
    """Send a request, and return the answer with its body unread.

    A server may answer before it has read a long body, and stop reading: its answer counts.
    """
    streams = isinstance(request.body, Iterator)
    with _told_as_no_answer():
        connection.putrequest(request.method, urlsplit(url).path.rstrip("/") + request.target)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        whole = _is_taken(lambda: connection.endheaders(None if streams else request.body))
    if isinstance(request.body, Iterator):
        whole = whole and _send_pieces(connection, request.body, int(request.headers["content-length"]))
    with _told_as_no_answer():
        response = connection.getresponse()
    if response.status < 300 and response.length is None and not response.chunked:
        raise NoAnswer("the answer does not tell its length, so it may have been cut short")
    response.will_close = response.will_close or not whole
    return response


def _send_pieces(connection: HTTPConnection, pieces: Iterator[bytes], size: int) -> bool:
    """Send a body; False if the server stopped reading it. Errors of `pieces` pass through."""
    for piece in pieces:
        size -= len(piece)
        if size < 0:
            break
        with _told_as_no_answer():
            if not _is_taken(lambda data=piece: connection.send(data)):  # type: ignore[misc]
                return False
    if size:
        raise NoAnswer("the body changed its size while it was sent")
    return True


def _is_taken(send: Callable[[], None]) -> bool:
    """Send something; False if the server reads no more."""
    try:
        send()
    except TimeoutError:
        raise
    except OSError:
        return False
    return True


@contextmanager
def _told_as_no_answer() -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as trouble:
        raise NoAnswer(_words(trouble)) from trouble


def _is_readable(connection: HTTPConnection) -> bool:
    """Whether the server has closed an idle connection, or sent something that nobody asked for."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _words(trouble: Exception) -> str:
    return str(trouble) or type(trouble).__name__
