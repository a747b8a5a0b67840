"""A relay between a server and an ARC CE: it ends TLS as the CE would, passes calls on, and makes their faults.

It has a certificate of the CE's authority, and the client's own key for the calls that it passes on.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.arc import ArcCe
from tests.arc_certificates import IssuedCertificate
from tests.deadlines import PATIENCE
from tests.faults.batch_frame import BatchShape, Faulty
from tests.instance import Instance, until
from tests.ports import free_port

CALLS = (
    ("POST .*action=([a-z]+)$", ""),
    ("PUT .*/session/", "upload"),
    ("GET .*/rest/[^/]+/jobs", "list"),
    ("GET .*/rest/[^/]+/info", "information"),
    ("GET .*/rest$", "versions"),
)
"""By method and address: the name of the call; empty: the action of the address. All others read files of jobs."""
GATEWAY_PATIENCE = 10.0
"""Seconds for one call to the CE; then the relay answers as a gateway does."""
XML = {"content-type": "application/xml", "accept": "application/xml"}
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True)
class RelayedAnswer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


ANSWERS = {
    "empty": RelayedAnswer(200),
    "no-jobs": RelayedAnswer(200, b"<jobs/>"),
    "garbage": RelayedAnswer(200, PAGE),
    "fail": RelayedAnswer(503, PAGE),
    "gone": RelayedAnswer(404),
    "newer": RelayedAnswer(200, b"<versions><version>2.0</version></versions>"),
}
"""Faults that are answers of the relay's own, so that the CE hears nothing of the call."""


class FaultyArc(Faulty[ArcCe]):
    """An ARC CE behind a relay."""

    def __init__(self, system: ArcCe, shape: BatchShape, folder: Path) -> None:
        super().__init__(system, shape, folder)
        self.port = free_port()
        self.server: Instance | None = None
        """The server that some faults kill."""
        self.calls: list[str] = []
        """The calls since the last `clear`."""
        self.context = self.tls(system.host)
        """Of the connections from now on."""
        self.url = f"https://localhost:{self.port}/arex"
        self.credential = folder / "credential.pem"
        """The server's, with its key."""
        self.give(system.client)
        self._relay: _Relay | None = None
        self._as_client = ssl.create_default_context(cafile=str(system.authority.file))
        self._as_client.load_cert_chain(system.client.certificate, system.client.key)

    def tls(self, host: IssuedCertificate) -> ssl.SSLContext:
        """TLS with this certificate. The CE asks for one of the client, as the relay does."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(host.certificate, host.key)
        context.load_verify_locations(self.system.authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def give(self, client: IssuedCertificate) -> None:
        """Give the server another credential."""
        new = self.credential.with_suffix(".new")
        new.write_bytes(client.certificate.read_bytes() + client.key.read_bytes())
        new.rename(self.credential)

    def clear(self) -> None:
        super().clear()
        self.calls.clear()

    def listen(self) -> None:
        self._relay = _Relay(self)
        threading.Thread(target=self._relay.serve_forever, daemon=True).start()

    def leave(self) -> None:
        """Refuse all connections. Each call has one of its own."""
        assert self._relay is not None
        self._relay.shutdown()
        self._relay.server_close()
        self._relay = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing listens at the address of the CE."""
        self.leave()
        try:
            yield
        finally:
            self.listen()

    @contextmanager
    def certificate(self, host: IssuedCertificate) -> Iterator[None]:
        """The CE has another certificate."""
        before = self.context
        self.context = self.tls(host)
        try:
            yield
        finally:
            self.context = before

    def take(self, call: str) -> str:
        """The fault of this call; empty: it has none."""
        fault, taken = self._faults / call, self._faults / f"{call}.taken"
        try:
            text = fault.read_text()
            if not text.startswith("always-"):
                fault.rename(taken)
        except FileNotFoundError:
            return ""
        return text.removeprefix("always-")

    def acted(self, call: str) -> None:
        (self._faults / f"{call}.taken").unlink(missing_ok=True)

    @contextmanager
    def hanging(self, call: str) -> Iterator[None]:
        """The next call hangs meanwhile. Its connection ends then."""
        self.set(call, "hang")
        until(lambda: self._is_held(call), what=f"the call {call}")
        try:
            yield
        finally:
            self.acted(call)

    def hold(self, call: str) -> None:
        until(lambda: not self._is_held(call), 2 * PATIENCE, "the end of the hold")

    def _is_held(self, call: str) -> bool:
        return (self._faults / f"{call}.taken").exists()

    def kill_server(self) -> None:
        assert self.server is not None
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGKILL)

    def kill_daemon(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(int((self._faults / "daemon").read_text()), signal.SIGKILL)

    def ask(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> RelayedAnswer:
        """The answer of the CE itself."""
        connection = self._connect()
        try:
            connection.request(method, target, body or None, headers)
            answer = connection.getresponse()
            return RelayedAnswer(answer.status, answer.read(), dict(answer.getheaders()))
        except TimeoutError:
            return RelayedAnswer(504, PAGE)
        finally:
            connection.close()

    def put_half(self, target: str, body: bytes) -> None:
        """Send the CE half of a file, and end the connection."""
        connection = self._connect()
        try:
            connection.putrequest("PUT", target)
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body[: len(body) // 2])
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        port, context = self.system.port, self._as_client
        return http.client.HTTPSConnection("localhost", port, timeout=GATEWAY_PATIENCE, context=context)

    def listed(self, state: str) -> str:
        """The CE's own listing of its jobs in a state."""
        return self.ask("GET", f"/arex/rest/1.0/jobs?state={state}", b"", XML).body.decode()

    def act(self, action: str, job: str) -> str:
        """What another client of the same identity does to a job, such as kill and clean; the CE's answer."""
        body = f"<jobs><job><id>{job}</id></job></jobs>".encode()
        answer = self.ask("POST", f"/arex/rest/1.0/jobs?action={action}", body, XML)
        return answer.body.decode()


class _Relay(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, faulty: FaultyArc) -> None:
        self.faulty = faulty
        super().__init__(("127.0.0.1", faulty.port), _Call)

    def get_request(self) -> tuple[Any, Any]:
        """The handshake takes place in the thread of the connection."""
        connection, address = super().get_request()
        connection.settimeout(PATIENCE)
        context = self.faulty.context
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Either side may leave at any time."""


class _Call(BaseHTTPRequestHandler):
    """One call of a connection of its own."""

    server: _Relay
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Tests look at `FaultyArc.calls`."""

    def do_GET(self) -> None:
        self._relay()

    do_HEAD = do_POST = do_PUT = do_GET

    def _relay(self) -> None:
        self.close_connection = True
        faulty, call = self.server.faulty, self._name()
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        faulty.calls.append(call)
        fault = faulty.take(call)
        try:
            if fault == "half":
                faulty.put_half(self.path, body)
            else:
                self._make(fault, call, lambda: self._ask(body))
        finally:
            if fault:
                faulty.acted(call)

    def _name(self) -> str:
        for pattern, name in CALLS:
            if found := re.match(pattern, f"{self.command} {self.path}"):
                return name or found[1]
        return "file"

    def _ask(self, body: bytes) -> RelayedAnswer:
        kept = ("accept", "content-type", "range")
        headers = {name: value for name in kept if (value := self.headers.get(name))}
        return self.server.faulty.ask(self.command, self.path, body, headers)

    def _make(self, fault: str, call: str, ask: Callable[[], RelayedAnswer]) -> None:
        faulty = self.server.faulty
        if fault in ANSWERS:
            self._send(ANSWERS[fault])
            return
        match fault:
            case "":
                self._send(ask())
            case "kill-server-before":
                faulty.acted(call)
                faulty.kill_server()
            case "kill-server-after":
                ask()
                faulty.acted(call)
                faulty.kill_server()
            case "kill-me-before":
                pass
            case "kill-me-after":
                ask()
            case "silent-after":
                ask()
                self._send(ANSWERS["empty"])
            case "garbage-after":
                ask()
                self._send(ANSWERS["garbage"])
            case "gateway-after":
                ask()
                self._send(RelayedAnswer(504, PAGE))
            case "kill-daemon-after":
                self._send(ask())
                faulty.kill_daemon()
            case "partial":
                self._send(ask(), part=True)
            case "short":
                whole = ask()
                self._send(RelayedAnswer(whole.status, whole.body[: len(whole.body) // 2]))
            case "hang":
                faulty.hold(call)
            case _:
                raise AssertionError(f"no such fault: {fault}")

    def _send(self, answer: RelayedAnswer, *, part: bool = False) -> None:
        """`part`: the connection ends in the middle of the body."""
        is_head = self.command == "HEAD"
        length = answer.headers.get("Content-Length", "0") if is_head else str(len(answer.body))
        self.send_response_only(answer.status)
        self.send_header("Content-Length", length)
        self.send_header("Connection", "close")
        self.end_headers()
        if not is_head:
            self.wfile.write(answer.body[: len(answer.body) // 2] if part else answer.body)


@contextmanager
def relayed(system: ArcCe, shape: BatchShape, folder: Path) -> Iterator[FaultyArc]:
    """A CE behind a relay that runs in threads of this process."""
    faulty = FaultyArc(system, shape, folder)
    faulty.listen()
    try:
        yield faulty
    finally:
        faulty.leave()
