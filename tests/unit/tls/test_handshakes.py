"""TLS connections of a server: every way in which a handshake can go, and what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from pilotage.server.context import ConnectionCounts
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection import http_protocol_factory
from pilotage.server.http.connection_limits import ConnectionCapacity, ConnectionLimits
from pilotage.server.process.certificates import make_certificate, make_server_context
from pilotage.wire.server_trust import ServerTrust
from tests.deadlines import PATIENCE

REQUEST = b"GET /somewhere HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"


async def _tells_the_scheme(scope: Any, receive: Any, send: Any) -> None:
    text = scope["scheme"].encode()
    fields = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": text})


class Server:
    """A server's connections on a loopback address. `port` and `admission` are for the tests."""

    def __init__(self, certificate: Path, limits: ConnectionLimits, capacity: ConnectionCapacity) -> None:
        self.admission = Admission(capacity, ConnectionCounts())
        self.state = ServerState()
        self.trust = ServerTrust(ca_file=str(certificate))
        self._config = uvicorn.Config(_tells_the_scheme, lifespan="off")
        context: Any = None
        factory: Any = http_protocol_factory(
            context, self.admission, limits, make_server_context(certificate)
        )
        self._make = lambda: factory(config=self._config, server_state=self.state, app_state={})

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self._make, "127.0.0.1", 0, backlog=200)
        self.port = self.server.sockets[0].getsockname()[1]

    async def fetch(self) -> bytes:
        """The answer to one request over TLS."""
        context = self.trust.make_context()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        writer.write(REQUEST)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def emptied(self) -> None:
        while self.admission.total or self.state.tasks or self.state.connections:
            await asyncio.sleep(0.01)


def run(
    folder: Path,
    talk: Callable[[Server], Awaitable[None]],
    limits: ConnectionLimits | None = None,
    capacity: ConnectionCapacity | None = None,
) -> None:
    """Run `talk` with a server; afterwards nothing may be left of any connection."""
    certificate = folder / "certificate.pem"
    certificate.write_text(make_certificate(["127.0.0.1"], time.time()))

    async def main() -> None:
        server = Server(certificate, limits or ConnectionLimits(), capacity or ConnectionCapacity())
        await server.start()
        async with asyncio.timeout(PATIENCE):
            await talk(server)
            await server.emptied()
        server.server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_many_at_once_are_answered(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        for _ in range(5):
            answers = await asyncio.gather(*(server.fetch() for _ in range(40)))
            assert all(answer.endswith(b"\r\n\r\nhttps") for answer in answers)

    run(tmp_path, talk)


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tmp_path: Path) -> None:
    """The client sends both in one packet: the server must keep the request for the protocol that follows."""

    async def talk(server: Server) -> None:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = server.trust.make_context()
            context.minimum_version = context.maximum_version = version
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            client.write(REQUEST)
            writer.write(outgoing.read())
            answer = b""
            while b"https" not in answer:
                incoming.write(await reader.read(65536))
                try:
                    answer += client.read()
                except ssl.SSLWantReadError:
                    continue
            assert answer.startswith(b"HTTP/1.1 200 ")
            writer.close()

    # The client does not end TLS in order, so the server waits for that as long as it lingers.
    run(tmp_path, talk, ConnectionLimits(linger=0.2))


@pytest.mark.parametrize("begun", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_a_handshake_that_takes_too_long_is_ended(tmp_path: Path, begun: bytes) -> None:
    async def talk(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begun)
        assert await reader.read() == b""
        writer.close()
        assert (await server.fetch()).endswith(b"https")

    run(tmp_path, talk, ConnectionLimits(handshake=2.0))


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00", REQUEST, b"\x00" * 100_000])
def test_a_client_that_leaves_leaves_nothing(tmp_path: Path, begun: bytes) -> None:
    async def talk(server: Server) -> None:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(begun)
            await asyncio.sleep(0)

    run(tmp_path, talk)


def test_plain_http_is_ended(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = await reader.read()
        assert b"HTTP" not in data
        writer.close()
        assert (await server.fetch()).endswith(b"https")

    run(tmp_path, talk)


def test_an_old_version_is_refused(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context)

    run(tmp_path, talk)


def test_unfinished_handshakes_count_against_their_address(tmp_path: Path) -> None:
    """The oldest one is closed for each further one; requests are still answered."""

    async def talk(server: Server) -> None:
        waiting = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        while not server.admission.counts.evicted:
            await asyncio.sleep(0.01)
        assert server.admission.total == 4
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await waiting[0][0].readexactly(1)
        assert (await server.fetch()).endswith(b"https")
        for _, writer in waiting:
            writer.close()

    run(tmp_path, talk, capacity=ConnectionCapacity(per_address=4))


def test_a_full_server_closes_an_unfinished_handshake_first(tmp_path: Path) -> None:
    async def talk(server: Server) -> None:
        waiting = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        assert (await server.fetch()).endswith(b"https")
        for _, writer in waiting:
            writer.close()

    run(tmp_path, talk, capacity=ConnectionCapacity(max_connections=3))
