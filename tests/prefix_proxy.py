"""A reverse proxy that serves a server of this machine below a prefix, as nginx does by `location /PREFIX/`."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.deadlines import PATIENCE

HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"})
"""Header fields of one connection (RFC 9110)."""


class PrefixProxy(ThreadingHTTPServer):
    """Passes requests on without the prefix. Addresses without it are answered with 404, and remembered."""

    daemon_threads = True

    def __init__(self, server: str, prefix: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.upstream = urlsplit(server).netloc
        self.prefix = prefix
        self.strays: list[str] = []
        self.visitor = "192.0.2.7"
        """The address that it names for all of its visitors."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}{prefix}"


class _Passage(BaseHTTPRequestHandler):
    server: PrefixProxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass_on(self, body: bytes | None) -> None:
        self.close_connection = True
        if not self.path.startswith(f"{self.server.prefix}/"):
            self.server.strays.append(self.path)
            self._answer(404)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        headers["X-Forwarded-For"] = self.server.visitor
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=PATIENCE)
        try:
            upstream.request(self.command, self.path.removeprefix(self.server.prefix), body, headers=headers)
            answer = upstream.getresponse()
        except (OSError, http.client.HTTPException):
            self._answer(502)
            return
        with suppress(OSError, http.client.HTTPException):  # either side may leave
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while piece := answer.read1(65_536):
                self.wfile.write(piece)
        upstream.close()

    def _answer(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()


@contextmanager
def prefix_proxy(server: str, prefix: str) -> Iterator[PrefixProxy]:
    """A proxy that runs in threads of this process."""
    with PrefixProxy(server, prefix) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
