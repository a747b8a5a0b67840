"""The connections of a server: its listening socket, TLS, and the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import uvicorn

from pilotage.server.context import Context
from pilotage.server.http.addresses import is_loopback, make_url, names_of, reachable_host
from pilotage.server.http.admission import Admission
from pilotage.server.http.app import Application
from pilotage.server.http.connection import http_protocol_factory
from pilotage.server.http.connection_limits import (
    ConnectionCapacity,
    ConnectionLimits,
    raise_file_limit,
)
from pilotage.server.http.sockets import accept_handles
from pilotage.server.process.settings import Settings

if TYPE_CHECKING:
    from pilotage.server.process.tls import ServerTls

HeaderFields = Sequence[tuple[bytes, bytes]]


class Front(Protocol):
    """The way of messages to a server."""

    url: str
    tls: ServerTls | None
    open_files: int
    """The limit of open files for local pilots."""

    async def start(self, context: Context, application: Application) -> None:
        """Take connections from now on."""

    def publish(self, fields: HeaderFields) -> None:
        """Send these fields in the header of every answer."""

    async def stop(self) -> None:
        """Close the connections, after the answers that are under way."""


class HttpFront:
    """Connections in the event loop of the server."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._listener = listener
        self._proxies = settings.proxies
        max_connections, self.open_files = raise_file_limit(settings.connections)
        self._capacity = ConnectionCapacity(max_connections, settings.connections_per_address)
        host, port = listener.getsockname()[:2]
        self.tls = None if is_loopback(host) else _make_tls(settings, listener)
        self.url = make_url("https" if self.tls else "http", reachable_host(listener), port)
        self._server: _Uvicorn
        self._listening: asyncio.Task[None]

    async def start(self, context: Context, application: Application) -> None:
        self._server = self._http_server(context, application)
        self._listening = asyncio.create_task(self._listen())
        while not self._server.started and not self._listening.done():
            await asyncio.sleep(0.01)

    def publish(self, fields: HeaderFields) -> None:
        # uvicorn reads its configuration once a second. Until then an answer could name a server without its pin.
        self._server.config.encoded_headers = list(fields)
        state = self._server.server_state
        state.default_headers = [
            *(field for field in state.default_headers if field[0] == b"date"),
            *fields,
        ]

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._listening

    async def _listen(self) -> None:
        await self._server.serve(sockets=accept_handles(self._listener))

    def _http_server(self, context: Context, application: Any, *, pilot_calls: bool = True) -> _Uvicorn:
        tls = self.tls.context if self.tls else None
        admission = Admission(self._capacity, context.work.connections)
        config = uvicorn.Config(
            application,
            http=http_protocol_factory(context, admission, ConnectionLimits(), tls, pilot_calls=pilot_calls),
            log_level="warning",
            access_log=False,
            proxy_headers=bool(self._proxies),
            forwarded_allow_ips=self._proxies,
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=5,
            limit_concurrency=None,
        )
        return _Uvicorn(config)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `_Server`: uvicorn's own handlers would close connections before the duties have ended."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _make_tls(settings: Settings, listener: socket.socket) -> ServerTls:
    # Imported here: a server on a loopback address needs no cryptography.
    from pilotage.server.process.certificates import CertificateFiles
    from pilotage.server.process.tls import ServerTls

    pilot_host = urlsplit(settings.pilot_server).hostname or ""
    files = CertificateFiles(settings.home.folder / "secrets")
    return ServerTls(files, names_of(listener, [pilot_host]), time.time())
