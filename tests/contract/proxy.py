"""A connection to PostgreSQL that can be cut at a chosen moment."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Passes bytes on. `cut_at(text, delivered)` cuts when the client sends `text`: after its delivery, or before."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._text, self._delivered = b"", False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._hung: list[socket.socket] = []
        self.cuts = 0
        self.open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, text: bytes, delivered: bool) -> None:
        self._text, self._delivered = text, delivered

    def hang(self) -> None:
        """Cut all connections on the client's side only."""
        self._hung.extend(server for _, server in self._pairs)
        for client, _ in self._pairs:
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for server in self._hung:
            server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.open:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._to))
            self._pairs.append((client, server))
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        try:
            self._copy(client, server)
        finally:
            if server not in self._hung:
                server.close()

    def _copy(self, client: socket.socket, server: socket.socket) -> None:
        selector = selectors.DefaultSelector()
        selector.register(client, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, client)
        with client, selector, contextlib.suppress(OSError):
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    if key.fileobj is client and self._text and self._text in data:
                        self._text = b""
                        self.cuts += 1
                        if self._delivered:
                            server.sendall(data)
                            server.recv(65536)  # its answer: the server has done it
                        return
                    key.data.sendall(data)
