"""What comes over a connection of a server: pilots' calls in whatever pieces and manners, and everything else."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.server.http.pilot_endpoints import MAX_BODY
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

ENROL = json.dumps(
    {"secret": "nobody's", "index": 0, "nonce": "n" * 32, "hostname": "h", "version": "0"}
).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("connections")) as instance:
        yield instance


class Raw:
    """A connection on which bytes are written as they are."""

    def __init__(self, instance: Instance) -> None:
        self.socket = socket.create_connection(("127.0.0.1", instance.port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def ended(self) -> bool:
        return self._file.read(1) == b""


def request(
    path: str, body: bytes = b"{}", *headers: str, version: str = "1.1", method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: here", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def code(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, Any]:
    return answer[0], json.loads(answer[2])["code"]


TAKE = request("/v1/pilot/exchange", b'{"incarnation":1}', "Authorization: Bearer nobody")


def test_many_calls_over_one_connection(server: Instance) -> None:
    with Raw(server) as raw:
        for _ in range(3):
            raw.send(TAKE)
            assert code(raw.answer()) == (401, "not-authenticated")
            raw.send(request("/v1/pilot/enrol", ENROL))
            assert code(raw.answer()) == (401, "not-authenticated")


def test_a_call_in_pieces(server: Instance) -> None:
    with Raw(server) as raw:
        for _ in range(2):
            for place in range(len(TAKE)):
                raw.send(TAKE[place : place + 1])
            assert code(raw.answer()) == (401, "not-authenticated")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (request("/v1/pilot/exchange"), (401, "not-authenticated")),
        (request("/v1/pilot/exchange", b"{", "Authorization: Bearer x"), (400, "invalid-input")),
        (request("/v1/pilot/exchange", b"[1]", "AUTHORIZATION: bearer x"), (400, "invalid-input")),
        (request("/v1/pilot/enrol", b"\xff"), (400, "invalid-input")),
        (request("/v1/pilot/exchange?a=1", b"{", "Authorization: Bearer x"), (400, "invalid-input")),
        (request("/v1/pilot/%65xchange", b"{", "Authorization: Bearer x"), (400, "invalid-input")),
        (request("http://here/v1/pilot/exchange"), (401, "not-authenticated")),
        (request("/v1/pilot/exchange", b"", method="GET"), (400, "invalid-input")),
        (request("/v1/pilot/exchanges"), (404, "not-found")),
    ],
)
def test_a_connection_goes_on_after_the_refusal_of_a_call(
    server: Instance, call: bytes, expected: tuple[int, str]
) -> None:
    with Raw(server) as raw:
        for _ in range(2):
            raw.send(call)
            assert code(raw.answer()) == expected
        raw.send(TAKE)
        assert code(raw.answer()) == (401, "not-authenticated")


def test_other_addresses_are_answered_before_and_after(server: Instance) -> None:
    with Raw(server) as raw:
        raw.send(TAKE)
        assert raw.answer()[0] == 401
        for _ in range(2):
            raw.send(request("/metrics", b"", method="GET"))
            assert raw.answer()[0] == 200
            raw.send(TAKE)
            assert raw.answer()[0] == 401


def test_a_body_in_chunks(server: Instance) -> None:
    head = b"POST /v1/pilot/enrol HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Raw(server) as raw:
        raw.send(head + b"%x\r\n%s\r\n" % (len(ENROL), ENROL))
        raw.send(b"0\r\n\r\n")
        assert code(raw.answer()) == (401, "not-authenticated")
        raw.send(TAKE)
        assert code(raw.answer()) == (401, "not-authenticated")


def test_a_client_that_waits_to_be_told_to_go_on(server: Instance) -> None:
    call = request("/v1/pilot/enrol", ENROL, "Expect: 100-continue")
    with Raw(server) as raw:
        raw.send(call[: -len(ENROL)])
        assert raw.answer()[0] == 100
        raw.send(ENROL)
        assert code(raw.answer()) == (401, "not-authenticated")


@pytest.mark.parametrize("manner", [("Connection: close", "1.1"), ("X-No: 1", "1.0")])
def test_a_connection_for_one_call(server: Instance, manner: tuple[str, str]) -> None:
    header, version = manner
    with Raw(server) as raw:
        raw.send(request("/v1/pilot/enrol", ENROL, header, version=version))
        answered = raw.answer()
        assert code(answered) == (401, "not-authenticated")
        assert answered[1].get("connection") == "close"
        assert raw.ended()


@pytest.mark.parametrize(
    "garbage",
    [
        b"POST /v1/pilot/exchange HTTP/1.1\r\n\x00\x01: \x02\r\n\r\n",
        b"POST /v1/pilot/exchange HTTP/1.1\r\nHost: here\r\nContent-Length: many\r\n\r\n",
    ],
)
def test_garbage_ends_the_connection(server: Instance, garbage: bytes) -> None:
    with Raw(server) as raw:
        raw.send(garbage)
        assert code(raw.answer()) == (400, "invalid-input")
        assert raw.ended()


def test_another_protocol_is_not_taken_up(server: Instance) -> None:
    with Raw(server) as raw:
        raw.send(request("/v1/pilot/exchange", b"", "Connection: upgrade", "Upgrade: h2c"))
        assert code(raw.answer()) == (401, "not-authenticated")
        assert raw.ended()


def test_a_second_call_ahead_of_the_answer_is_not_carried_out(server: Instance) -> None:
    for second in (TAKE, request("/v1/pilot/exchange"), b"POST"):
        with Raw(server) as raw:
            raw.send(TAKE + second)
            answered = raw.answer()
            assert code(answered) == (401, "not-authenticated")
            assert answered[1].get("connection") == "close"
            assert raw.ended()


def test_too_large_a_call(server: Instance) -> None:
    head = b"POST /v1/pilot/exchange HTTP/1.1\r\nHost: here\r\nContent-Length: 64000000\r\n\r\n"
    with Raw(server) as raw:
        raw.send(head)
        raw.send(b" " * (MAX_BODY + 1))
        assert code(raw.answer()) == (413, "too-large")
        assert raw.ended()


def test_clients_that_go_away_harm_nobody(server: Instance) -> None:
    for part in (0, 10, len(TAKE) - 3, len(TAKE)):
        with Raw(server) as raw:
            raw.send(TAKE[:part])
    with Raw(server) as raw:
        raw.send(TAKE)
        assert raw.answer()[0] == 401


def test_a_server_ends_while_connections_are_open(tmp_path: Path) -> None:
    with running(tmp_path) as instance, Raw(instance) as idle, Raw(instance) as begun:
        idle.send(TAKE)
        assert idle.answer()[0] == 401
        begun.send(TAKE[:-3])
        instance.stop_server()
        assert idle.ended()
        assert begun.ended()
