"""Calls over HTTPS to a server that hangs, lies, cuts its answer, or that nobody trusts. Nothing is sent twice."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.arc.adapter import ArcBatch
from pilotage.outside.batch.arc.rest import ArcClient
from pilotage.outside.batch.https_connection import HttpsConnection, NoConnection
from tests.arc_certificates import TestAuthority
from tests.deadlines import PATIENCE
from tests.ports import free_port

Serve = Callable[[ssl.SSLSocket], None]
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"


class Server:
    """A server of TLS that treats each connection as `serve` says."""

    def __init__(self, authority: TestAuthority, folder: Path, serve: Serve, name: str = "localhost") -> None:
        issued = authority.issue(name, folder, server=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        self._context, self._serve = context, serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with suppress(OSError), self._context.wrap_socket(plain, server_side=True) as sock:
                    self._serve(sock)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority") / "ca", "CA")


@contextmanager
def connected(
    authority: TestAuthority, folder: Path, serve: Serve, timeout: float = PATIENCE
) -> Iterator[HttpsConnection]:
    server = Server(authority, folder / "server", serve)
    context = ssl.create_default_context(capath=str(authority.folder))
    made = HttpsConnection("localhost", server.port, context, timeout)
    try:
        yield made
    finally:
        made.close()
        server.close()


def answering(*parts: bytes) -> Serve:
    def serve(sock: ssl.SSLSocket) -> None:
        sock.recv(10_000)
        for part in parts:
            sock.sendall(part)

    return serve


def test_a_connection_that_the_server_ended_is_made_anew(authority: TestAuthority, tmp_path: Path) -> None:
    with connected(authority, tmp_path, answering(WHOLE)) as connection:
        for _ in range(3):
            reply = connection.send("GET", "/", b"", {})
            assert (reply.status, reply.text, reply.length) == (200, "abc", 3)
            # The end of the connection must have come before the next call looks.
            with suppress(ssl.SSLError):
                assert connection._connection.sock.recv(1) == b""


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", b"no"],
)
def test_an_answer_that_is_cut_off_is_an_error(authority: TestAuthority, tmp_path: Path, said: bytes) -> None:
    asked: list[bytes] = []

    def serve(sock: ssl.SSLSocket) -> None:
        asked.append(sock.recv(10_000))
        sock.sendall(said)

    with (
        connected(authority, tmp_path, serve) as connection,
        pytest.raises((OSError, http.client.HTTPException)),
    ):
        connection.send("POST", "/jobs", b"<x/>", {})
    assert len(asked) == 1, "nothing is sent twice"


def test_a_server_that_says_nothing_ends_the_call_in_its_time(
    authority: TestAuthority, tmp_path: Path
) -> None:
    ended = threading.Event()

    def hang(sock: ssl.SSLSocket) -> None:
        ended.wait(PATIENCE)

    with connected(authority, tmp_path, hang, timeout=0.2) as connection, pytest.raises(TimeoutError):
        connection.send("GET", "/", b"", {})
    ended.set()


def test_a_call_that_hangs_ends_when_another_thread_closes(authority: TestAuthority, tmp_path: Path) -> None:
    came, ended = threading.Event(), threading.Event()

    def hang(sock: ssl.SSLSocket) -> None:
        sock.recv(10_000)
        came.set()
        ended.wait(PATIENCE)

    with connected(authority, tmp_path, hang) as connection:

        def close() -> None:
            came.wait(PATIENCE)
            connection.close()

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises((OSError, http.client.HTTPException)):
            connection.send("GET", "/", b"", {})
        closer.join()
    ended.set()


def test_nothing_is_sent_where_no_connection_is_made(authority: TestAuthority, tmp_path: Path) -> None:
    context = ssl.create_default_context(capath=str(authority.folder))
    with pytest.raises(NoConnection):
        HttpsConnection("localhost", free_port(), context, 5.0).send("GET", "/", b"", {})


def test_a_ce_that_nobody_trusts_and_one_of_another_name_get_nothing(
    authority: TestAuthority, tmp_path: Path
) -> None:
    heard: list[bytes] = []

    def serve(sock: ssl.SSLSocket) -> None:
        heard.append(sock.recv(10_000))

    ours = Server(authority, tmp_path / "ours", serve)
    renamed = Server(authority, tmp_path / "renamed", serve, "elsewhere")
    other = TestAuthority(tmp_path / "other", "other")

    def failure(server: Server, ca: TestAuthority) -> str:
        options = ArcOptions(url=f"https://localhost:{server.port}/arex", ca=str(ca.folder))
        client = ArcClient(options, {"BEARER_TOKEN": "word"}, 1, PATIENCE, HttpsConnection)
        return ArcBatch(client, options).list_pilots().failure

    try:
        untrusted = failure(ours, other)
        assert "the certificate of localhost is not accepted: unable to get local issuer" in untrusted
        assert "`ca` names the file or folder" in untrusted
        assert "is not accepted: Hostname mismatch" in failure(renamed, authority)
        assert not heard
    finally:
        ours.close()
        renamed.close()
