"""Connections of the client: used again, closed by servers, answered early, cut short, through proxies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from pilotage.client import Client
from pilotage.client.connections import (
    MAX_CONNECTIONS,
    ConnectionPool,
    HttpRequest,
    NoAnswer,
    NotConnected,
)
from pilotage.core.errors import NotAuthenticated

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
TIMEOUT = 60.0


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    with closing(ConnectionPool(None)) as pool:
        yield pool


@contextmanager
def serve(*connections: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats its first connections so, one after the other, and takes no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            for treat in connections:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    treat(connection)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "the client has made too few connections"


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        if not piece:
            raise ConnectionError
        head += piece
    return head


def answer(*answers: bytes) -> Callable[[socket.socket], None]:
    """Answer so many requests, then close the connection."""

    def treat(connection: socket.socket) -> None:
        for text in answers:
            read_head(connection)
            connection.sendall(text)

    return treat


def get(target: str = "/", **headers: str) -> HttpRequest:
    return HttpRequest("GET", target, headers, None, TIMEOUT)


def put(body: Iterator[bytes], size: int) -> HttpRequest:
    return HttpRequest("PUT", "/", {"content-length": str(size)}, body, TIMEOUT)


def test_a_connection_is_used_again_until_the_server_closes_it(pool: ConnectionPool) -> None:
    closed = threading.Event()

    def first(connection: socket.socket) -> None:
        answer(OK, OK)(connection)
        connection.close()
        closed.set()

    with serve(first, answer(OK)) as url:
        assert [pool.send(url, get()).whole().content for _ in range(2)] == [b"ok", b"ok"]
        assert closed.wait(TIMEOUT)
        assert pool.send(url, get()).whole().content == b"ok"


def test_a_body_in_pieces_arrives_whole(pool: ConnectionPool) -> None:
    came = bytearray()

    def treat(connection: socket.socket) -> None:
        read_head(connection)
        while len(came) < 6:
            came.extend(connection.recv(100))
        connection.sendall(OK)

    with serve(treat) as url:
        assert pool.send(url, put(iter([b"abc", b"def"]), 6)).whole().status == 200
    assert came == b"abcdef"


@pytest.mark.parametrize("streamed", [True, False])
def test_an_early_answer_to_a_long_body_counts(pool: ConnectionPool, streamed: bool) -> None:
    """The server stops reading: the client must not take its closed connection for an outage."""

    def treat(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(TOO_LARGE)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    size = 200 * 1024
    body = iter([bytes(1024)] * 200) if streamed else bytes(size)
    request = HttpRequest("PUT", "/", {"content-length": str(size)}, body, TIMEOUT)
    with serve(treat, answer(OK)) as url:
        refused = pool.send(url, request).whole()
        assert (refused.status, refused.content) == (413, b"no")
        assert pool.send(url, get()).whole().status == 200, "on another connection"


@pytest.mark.parametrize("pieces", [[b"abc"], [b"abc", b"def", b"ghi"]])
def test_a_body_of_another_size_than_announced_is_no_whole(pool: ConnectionPool, pieces: list[bytes]) -> None:
    came = []

    def treat(connection: socket.socket) -> None:
        read_head(connection)
        while piece := connection.recv(100):
            came.append(piece)

    with serve(treat) as url, pytest.raises(NoAnswer, match="changed its size"):
        pool.send(url, put(iter(pieces), 8))
    assert len(b"".join(came)) < 8


def test_an_error_of_the_body_passes_through_and_frees_its_place(pool: ConnectionPool) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise PermissionError("cannot read it")

    times = MAX_CONNECTIONS + 1
    with serve(*[read_head_only] * times, answer(OK)) as url:
        for _ in range(times):
            with pytest.raises(PermissionError):
                pool.send(url, put(broken(), 5))
        assert pool.send(url, get()).whole().status == 200


def read_head_only(connection: socket.socket) -> None:
    read_head(connection)


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(pool: ConnectionPool, text: bytes) -> None:
    with serve(answer(text)) as url, pytest.raises(NoAnswer):
        pool.send(url, get()).whole()
    with serve(answer(text)) as url, pytest.raises(NoAnswer), closing(pool.send(url, get())) as streamed:
        list(streamed.pieces())


def test_an_answer_that_was_not_read_to_its_end_ends_its_connection(pool: ConnectionPool) -> None:
    with serve(answer(OK), answer(OK)) as url:
        pool.send(url, get()).close()
        assert pool.send(url, get()).whole().content == b"ok"


def test_a_server_that_is_absent_got_nothing(pool: ConnectionPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(NotConnected, match="refused"):
        pool.send(url, get())


def test_tls_passes_through_the_proxy_of_the_environment(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def treat(connection: socket.socket) -> None:
        asked.append(read_head(connection))
        connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    for name in ("https_proxy", "all_proxy"):
        with serve(treat) as proxy, monkeypatch.context() as environment:
            for variable in ("https_proxy", "all_proxy", "no_proxy"):
                environment.delenv(variable, raising=False)
                environment.delenv(variable.upper(), raising=False)
            environment.setenv(name, proxy)
            with pytest.raises(NotConnected, match="407"):
                pool.send("https://server.invalid", get(authorization="Bearer secret"))
            with pytest.raises(NotConnected):
                pool.send("http://127.0.0.1:1", get())  # never through a proxy
        assert asked[-1].startswith(b"CONNECT server.invalid:443 ")
        assert b"secret" not in asked[-1]


@pytest.mark.parametrize("proxy", ["https://proxy.invalid:3128", "socks5://proxy.invalid"])
def test_other_proxies_are_refused_in_words(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(NotConnected, match="is no HTTP proxy"):
        pool.send("https://server.invalid", get())


def test_a_damaged_token_is_neither_sent_nor_told() -> None:
    with Client("http://127.0.0.1:1", "sec\r\nret") as client, pytest.raises(NotAuthenticated) as caught:
        client.whoami()
    assert "sec" not in str(caught.value)
