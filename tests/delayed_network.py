"""A network between servers and their database on which each round trip takes longer, in a process of its own.

`python tests/delayed_network.py PORT SECONDS` prints the port at which it listens, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Arrived = tuple[float, bytes]
"""When a part of a message arrived; no bytes: the connection has ended."""


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """A port of this machine from which each message to `port` takes so many seconds longer."""
    command = [sys.executable, str(Path(__file__).resolve()), str(port), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait()


def serve(listener: socket.socket, port: int, seconds: float) -> None:
    """Pass all connections on. Answers are passed on at once, so `seconds` is the delay of a round trip."""
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            client.close()
            continue
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        under_way: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        parts = (
            (receive, client, under_way),
            (deliver, server, under_way, seconds),
            (pass_back, server, client),
        )
        for action, *values in parts:
            threading.Thread(target=action, args=values, daemon=True).start()


def receive(client: socket.socket, under_way: queue.SimpleQueue[Arrived]) -> None:
    data = b"?"
    while data:
        try:
            data = client.recv(1 << 18)
        except OSError:
            data = b""
        under_way.put((time.monotonic(), data))


def deliver(server: socket.socket, under_way: queue.SimpleQueue[Arrived], seconds: float) -> None:
    """Deliver each part when its time has passed, and the end of the connection too."""
    with contextlib.suppress(OSError):
        while True:
            arrived, data = under_way.get()
            time.sleep(max(0.0, arrived + seconds - time.monotonic()))
            if not data:
                break
            server.sendall(data)
    _end(server)


def pass_back(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(1 << 18):
            client.sendall(data)
    _end(client)
    server.close()


def _end(one: socket.socket) -> None:
    """End the connection for both sides; its other thread sees the end."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    threading.Thread(target=serve, args=(listener, port, seconds), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
