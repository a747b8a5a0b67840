"""A proxy between pilots and server that drops, doubles, delays and reorders. Seeded; loopback only."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import TracebackType

from tests.deadlines import PATIENCE


class ChaosProxy:
    """Forwards requests to `port`; each exchange meets a fault with probability `fault`."""

    def __init__(self, port: int, seed: int, fault: float) -> None:
        self.rng = Random(seed)
        self.lock = threading.Lock()
        self.met: dict[str, int] = {}
        self.kept: list[tuple[str, bytes, dict[str, str]]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy._answer(self, port, fault)

            do_GET = do_PUT = do_POST

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> ChaosProxy:
        self.thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def _fault(self, path: str, fault: float) -> str:
        with self.lock:
            if not path.endswith("/exchange") or self.rng.random() > fault:
                return ""
            kind = self.rng.choice(["lose-request", "lose-answer", "double", "delay", "replay-old"])
            self.met[kind] = self.met.get(kind, 0) + 1
            return kind

    def _answer(self, handler: BaseHTTPRequestHandler, port: int, fault: float) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {
            key: value for key, value in handler.headers.items() if key.lower() not in ("host", "connection")
        }
        message = (handler.path, body, headers)
        kind = self._fault(handler.path, fault)
        if kind == "lose-request":
            handler.close_connection = True
            return
        if kind == "replay-old":
            self._replay(port, handler.command)
        answer = _forward(port, handler.command, *message)
        with self.lock:
            self.kept = [*self.kept[-20:], message]
        if kind == "double":
            answer = _forward(port, handler.command, *message)
        if kind == "delay":
            # Longer than the pilot's patience for the next of several messages, shorter than a lease.
            threading.Event().wait(0.3)
        if kind == "lose-answer" or answer is None:
            handler.close_connection = True
            return
        status, content = answer
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _replay(self, port: int, method: str) -> None:
        """An old message arrives again, behind newer ones; its answer goes nowhere."""
        with self.lock:
            old = self.rng.choice(self.kept) if self.kept else None
        if old is not None:
            _forward(port, method, *old)


def _forward(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return None
    finally:
        connection.close()
