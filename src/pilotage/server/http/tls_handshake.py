"""The start of a TLS connection: it is limited and counted before the peer has said anything that can be trusted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from uvicorn.server import ServerState

from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits


class TlsHandshake(asyncio.Protocol):
    """A connection from its acceptance to the end of its TLS handshake; then another protocol takes it over.

    Until then it counts as an idle connection without trust, which may be evicted in favour of another.
    """

    is_idle = True

    def __init__(
        self,
        tls: ssl.SSLContext,
        admission: Admission,
        limits: ConnectionLimits,
        state: ServerState,
        make_connection: Callable[[], asyncio.Protocol],
    ) -> None:
        self._tls = tls
        self._admission = admission
        self._limits = limits
        self._state = state
        self._make_connection = make_connection
        self._transport: asyncio.Transport
        self._first_data = b""
        """Received before `start_tls` has taken the transport over."""
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if not self._admission.join(self):
            self._transport.abort()
            return
        self._state.connections.add(self)  # type: ignore[arg-type]
        task = asyncio.get_running_loop().create_task(self._shake_hands())
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def data_received(self, data: bytes) -> None:
        self._first_data += data

    def evict(self) -> None:
        self._transport.abort()

    def shutdown(self) -> None:
        """The server is stopping (called by uvicorn)."""
        self._transport.abort()

    async def _shake_hands(self) -> None:
        early, loop = _EarlyData(), asyncio.get_running_loop()
        if self._first_data:
            loop.call_soon(self._feed_first_data)
        try:
            transport = await loop.start_tls(
                self._transport,
                early,
                self._tls,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake,
                ssl_shutdown_timeout=self._limits.linger,
            )
        except (OSError, RuntimeError, TypeError):
            # No TLS, no common version or cipher, too slow, gone, or evicted.
            self._transport.abort()
            return
        finally:
            self._admission.leave(self)
            self._state.connections.discard(self)
        if transport is not None and not transport.is_closing() and not early.lost:
            early.hand_over(transport, self._make_connection())

    def _feed_first_data(self) -> None:
        """Hand the first data to the protocol of `start_tls`, which begins the handshake right after this."""
        # A protocol with buffers. That of uvloop is not derived from asyncio's.
        protocol: Any = self._transport.get_protocol()
        while self._first_data and not self._transport.is_closing():
            buffer = protocol.get_buffer(len(self._first_data))
            count = min(len(buffer), len(self._first_data))
            buffer[:count] = self._first_data[:count]
            protocol.buffer_updated(count)
            self._first_data = self._first_data[count:]


class _EarlyData(asyncio.Protocol):
    """Keeps the data that comes between the end of the handshake and the hand-over, a few turns of the loop later."""

    def __init__(self) -> None:
        self._data = b""
        self._at_end = False
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self._data += data

    def eof_received(self) -> bool:
        self._at_end = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def hand_over(self, transport: asyncio.Transport, connection: asyncio.Protocol) -> None:
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._data:
            connection.data_received(self._data)
        if self._at_end:
            transport.close()
