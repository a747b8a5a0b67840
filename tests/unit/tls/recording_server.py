"""A TLS server on a loopback address that keeps every byte sent to it, and an HTTP proxy in front of it."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.deadlines import PATIENCE

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%sConnection: close\r\n\r\n{}"


class RecordingServer:
    """Answers each request with {}. `context`: None for plain HTTP."""

    def __init__(self, context: ssl.SSLContext | None, fields: bytes = b"") -> None:
        self._context = context
        self._fields = fields
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = b""
        self.connections = 0
        self.closed = threading.Event()
        """A connection has ended."""
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                self._serve(raw)
            except OSError:
                pass
            finally:
                raw.close()
                self.closed.set()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(PATIENCE)
        connection = self._context.wrap_socket(raw, server_side=True) if self._context else raw
        with connection:
            head = b""
            while not _is_complete(head):
                data = connection.recv(65536)
                head += data
                self.received += data
                if not data or head.startswith(b"\x16"):  # TLS is not spoken here
                    return
            if head.startswith(b"CONNECT "):
                self._tunnel(connection, head)
            else:
                connection.sendall(ANSWER % self._fields)

    def _tunnel(self, client: socket.socket, head: bytes) -> None:
        host, _, port = head.split()[1].decode().rpartition(":")
        # The proxy resolves names: every name is this machine here.
        del host
        with socket.create_connection(("127.0.0.1", int(port))) as server:
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def _is_complete(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@contextmanager
def recording(context: ssl.SSLContext | None, fields: bytes = b"") -> Iterator[RecordingServer]:
    server = RecordingServer(context, fields)
    try:
        yield server
    finally:
        server.close()
