"""The relay on a login node. Its source is sent over the connection, so it needs nothing but Python 3.9.

It listens for the nodes, and passes their bytes to a socket of its own, which ssh forwards to the server. TLS goes
through it from end to end: it can read nothing. It ends with its standard input, or when the server is silent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile

SILENCE = 60.0
"""Seconds without a sign of the server. sshd may not notice for hours that a laptop sleeps."""

MOST_CONNECTIONS = 2000
PIECE = 65536


class Relay:
    """Joins each connection of a node with one to the socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MOST_CONNECTIONS:
            writer.close()
            return
        self._open += 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            self._open -= 1
            writer.close()
            return
        try:
            await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))
        finally:
            self._open -= 1
            server_writer.close()
            writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass everything on, and then the end."""
    try:
        while True:
            piece = await reader.read(PIECE)
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def listen(relay: Relay, host: str, port: int) -> asyncio.AbstractServer:
    """Listen at the host's own address where it is one of this machine, else at all addresses. Port 0: any free one."""
    if not port:
        # Else the addresses of IPv4 and IPv6 would get two ports, and the nodes are told one.
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    if host:
        try:
            return await asyncio.start_server(relay.serve, host, port)
        except OSError:
            pass
    return await asyncio.start_server(relay.serve, None, port)


async def wait_for_end() -> None:
    """Wait until the standard input ends or is silent, or until somebody ends the relay."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(name, stopped.set)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def hear() -> None:
        while await asyncio.wait_for(reader.read(PIECE), SILENCE):
            pass

    waits = [asyncio.ensure_future(hear()), asyncio.ensure_future(stopped.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


def port_of(server: asyncio.AbstractServer) -> int:
    """The port of a server that listens at one port of several addresses."""
    sockets = getattr(server, "sockets")  # noqa: B009
    return int(sockets[0].getsockname()[1])


async def run(host: str, port: int, folder: str) -> str | None:
    """Serve until the end. The reason if the port is taken."""
    path = os.path.join(folder, "server")
    try:
        server = await listen(Relay(path), host, port)
    except OSError as error:
        return f"port {port} cannot be used: {error.strerror}"
    facts = {"socket": path, "host": socket.gethostname(), "port": port_of(server)}
    print("relay", json.dumps(facts), flush=True)
    await wait_for_end()
    server.close()
    return None


def main() -> None:
    folder = tempfile.mkdtemp(prefix="pilotage-relay-")
    try:
        failure = asyncio.run(run(sys.argv[1], int(sys.argv[2]), folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if failure:
        print("relay", json.dumps({"failure": failure}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
