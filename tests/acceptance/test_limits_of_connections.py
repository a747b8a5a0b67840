"""Without a token nobody takes the server's memory, its time or its connections from the others."""

from __future__ import annotations

import hashlib
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from pilotage.server.http.connection_limits import (
    BODY_WITHOUT_TOKEN,
    MAX_CONNECTIONS,
    MAX_PER_ADDRESS,
    RESERVED_FILES,
    ConnectionLimits,
)
from tests.acceptance.test_connections import ENROL, TAKE, Raw, code, request
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

LIMITS = ConnectionLimits()
MB = 1_000_000
ROOM = 60 * MB
"""What an attack may add to the server's memory; before there were limits it was hundreds of MB to GB."""
PROMPTLY = 10.0
"""Seconds in which a server takes more bytes, if it takes more at all."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("limits")) as instance:
        yield instance


def memory(server: Instance) -> int:
    """Bytes of the server's process in memory."""
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def lives(server: Instance) -> None:
    answer = httpx.get(f"http://127.0.0.1:{server.port}/live", timeout=PATIENCE, trust_env=False)
    assert answer.json()["status"] == "live"


def send_until_refused(raw: Raw, piece: bytes, most: int) -> int:
    """Send the same piece again and again, `most` bytes at most; how many were sent until the server had enough."""
    sent = 0
    raw.socket.settimeout(PROMPTLY)
    while sent < most:
        try:
            raw.socket.sendall(piece)
        except OSError:
            break
        sent += len(piece)
    raw.socket.settimeout(PATIENCE)
    return sent


HOT = b"POST /v1/pilot/exchange HTTP/1.1\r\nHost: here\r\n"
OTHER = b"POST /v1/submissions HTTP/1.1\r\nHost: here\r\n"
LIVE = b"GET /live HTTP/1.1\r\nHost: here\r\n"


@pytest.mark.parametrize("start", [b"", b"POST /v1/pi", HOT, OTHER, LIVE])
@pytest.mark.parametrize("piece", [1, 1000, 1 * MB])
def test_an_endless_header_is_refused(server: Instance, start: bytes, piece: int) -> None:
    before = memory(server)
    with Raw(server) as raw:
        raw.send(start + (b"X-Endless: " if start.endswith(b"\n") else b""))
        most = LIMITS.head + 1 if piece == 1 else 30 * MB
        send_until_refused(raw, b"A" * piece, most)
        lives(server)
        status, headers, body = raw.answer()
        assert status in ((431,) if start.endswith(b"\n") else (400, 431))
        assert headers["connection"] == "close"
        assert json.loads(body)["code"] in ("header-too-large", "invalid-input")
    assert memory(server) - before < ROOM


@pytest.mark.parametrize("start", [HOT, OTHER, LIVE])
@pytest.mark.parametrize(
    "fields",
    [
        b"".join(b"X-%d: 1\r\n" % number for number in range(LIMITS.fields + 1)),
        b"A:\r\n" * 60_000,
        b"X: " + b"y" * LIMITS.head + b"\r\n",
    ],
)
def test_a_header_that_is_whole_and_too_large_is_refused(
    server: Instance, start: bytes, fields: bytes
) -> None:
    with Raw(server) as raw:
        raw.send(start + fields + b"\r\n")
        assert code(raw.answer()) == (431, "header-too-large")
        assert raw.ended()
    lives(server)


def test_a_long_address_is_refused(server: Instance) -> None:
    with Raw(server) as raw:
        raw.send(b"GET /" + b"a" * LIMITS.request_line + b" HTTP/1.1\r\nHost: here\r\n\r\n")
        assert code(raw.answer()) == (431, "header-too-large")
        assert raw.ended()


@pytest.mark.parametrize("path", [b"/v1/pilot/enrol", b"/v1/submissions", b"/v1/uploads/" + b"a" * 64])
@pytest.mark.parametrize("endless", [b"1;" + b"a" * MB, b"0\r\nX: " + b"a" * MB, b"0\r\n" + b"X: y\r\n" * MB])
def test_endless_chunk_extensions_and_trailers_are_refused(
    server: Instance, path: bytes, endless: bytes
) -> None:
    before = memory(server)
    with Raw(server) as raw:
        method = b"PUT" if b"uploads" in path else b"POST"
        raw.send(method + b" " + path + b" HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
        raw.send(b"1\r\n \r\n")
        send_until_refused(raw, endless[: 1 * MB], MB)
        send_until_refused(raw, b"a" * MB, 30 * MB)
        lives(server)
        assert raw.answer()[0] in (400, 401, 413, 431)
    assert memory(server) - before < ROOM


def test_peers_that_ask_ahead_and_never_read_take_no_memory(server: Instance) -> None:
    before = memory(server)
    with ExitStack() as stack:
        for number in range(50):
            raw = stack.enter_context(Raw(server))
            one = [b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n", TAKE, LIVE + b"\r\n"][number % 3]
            raw.socket.setblocking(False)
            for _ in range(20):
                try:
                    raw.socket.send(one * 5000)
                except OSError:
                    break
        lives(server)
        assert memory(server) - before < 2 * ROOM
    lives(server)


def test_peers_that_ask_one_by_one_and_never_read_take_no_memory(server: Instance) -> None:
    """Each request comes when the one before has been answered, so none is ahead."""
    before = memory(server)
    one = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
    with ExitStack() as stack:
        peers = [stack.enter_context(Raw(server)) for _ in range(20)]
        for raw in peers:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            for raw in peers:
                raw.socket.setblocking(False)
                try:
                    raw.socket.send(one)
                except OSError:
                    continue
            lives(server)
        assert memory(server) - before < ROOM


@pytest.mark.parametrize("begun", [b"", b"POST /v1/pilot/exch", HOT, request("/v1/pilot/enrol", ENROL)[:-5]])
def test_connections_that_only_wait_lock_nobody_out(server: Instance, begun: bytes) -> None:
    with ExitStack() as stack:
        client = server.client()
        assert client.whoami().user
        for _ in range(1200):
            raw = stack.enter_context(Raw(server))
            if begun:
                raw.send(begun)
        lives(server)
        assert client.whoami().user
        assert server.cli("status").returncode == 0
        with Raw(server) as pilot:
            pilot.send(TAKE)
            assert code(pilot.answer()) == (401, "not-authenticated")
        assert connections_of(server) <= MAX_PER_ADDRESS + 50


def connections_of(server: Instance) -> int:
    assert server.process is not None
    sockets = [path for path in Path(f"/proc/{server.process.pid}/fd").iterdir() if _is_socket(path)]
    return len(sockets)


def _is_socket(path: Path) -> bool:
    try:
        return "socket:" in str(path.readlink())
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/pilot/exchange"),
        ("POST", "/v1/pilot/exchange?a=1"),
        ("POST", "/v1/submissions"),
        ("POST", "/v1/tokens"),
        ("PUT", "/v1/uploads/" + "a" * 64),
        ("PUT", "/v1/pilot/jobs/1/1/outputs/x"),
        ("POST", "/v1/pilot/jobs/1/tail?stream=stdout&epoch=1"),
    ],
)
@pytest.mark.parametrize("token", ["", "Authorization: Bearer nobody\r\n"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_not_taken_from_a_stranger(
    server: Instance, method: str, path: str, token: str, chunked: bool
) -> None:
    before = memory(server)
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {32 * MB}"
    with Raw(server) as raw:
        raw.send(f"{method} {path} HTTP/1.1\r\nHost: here\r\n{token}{size}\r\n\r\n".encode())
        send_until_refused(raw, b"%x\r\n%s\r\n" % (MB, b" " * MB) if chunked else b" " * MB, 32 * MB)
        status, _, body = raw.answer()
        assert status in ((401, 413) if chunked else (401,)), body
        assert json.loads(body)["code"] in ("not-authenticated", "too-large")
    lives(server)
    assert memory(server) - before < ROOM


def test_enrolment_takes_a_small_body_only(server: Instance) -> None:
    with Raw(server) as raw:
        raw.send(request("/v1/pilot/enrol", b" " * (BODY_WITHOUT_TOKEN + 1)))
        assert code(raw.answer()) == (413, "too-large")
        assert raw.ended()


def token_of(server: Instance) -> str:
    return (server.home / "token").read_text().strip()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_known_sender_is_told_that_a_body_is_too_large(server: Instance, chunked: bool) -> None:
    head = f"POST /v1/tokens HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token_of(server)}\r\n"
    with Raw(server) as raw:
        if chunked:
            raw.send((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        else:
            raw.send((head + f"Content-Length: {40 * MB}\r\n\r\n").encode())
            send_until_refused(raw, b" " * MB, 40 * MB)
        assert code(raw.answer()) == (413, "too-large")
        assert raw.ended()


def upload(server: Instance, data: bytes, token: str, trailer: str = "") -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    head = f"PUT /v1/uploads/{digest} HTTP/1.1\r\nHost: here\r\n{token}Transfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(data), data, trailer.encode())


def test_a_trailer_is_no_header(server: Instance) -> None:
    good, bad = f"Authorization: Bearer {token_of(server)}\r\n", "Authorization: Bearer nobody\r\n"
    for token, trailer, expected in ((good, "", 201), (good, bad, 201), (bad, good, 401), ("", good, 401)):
        with Raw(server) as raw:
            raw.send(upload(server, b"some bytes", token, trailer))
            assert raw.answer()[0] == expected


def test_a_trailer_of_a_pilots_call_is_no_header(server: Instance) -> None:
    """A message without a token stays one, whatever its trailer says: the error is not the one about the token."""
    head = b"POST /v1/pilot/exchange HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Raw(server) as raw:
        raw.send(head + b'11\r\n{"incarnation":1}\r\n0\r\nAuthorization: Bearer nobody\r\n\r\n')
        status, _, body = raw.answer()
        assert status == 401
        assert json.loads(body)["message"] == "no token was given"


SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
ODD = {
    "length and chunked": b"Host: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"Host: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": b"Host: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "the same length twice": b"Host: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": b"Host: h\r\nContent-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": b"Host: h\r\nContent-Length: +3\r\n\r\nabc",
    "a negative length": b"Host: h\r\nContent-Length: -3\r\n\r\nabc",
    "a length of 67 bits": b"Host: h\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    "a space before the colon": b"Host: h\r\nContent-Length : 3\r\n\r\nabc",
    "a bare LF": b"Host: h\nContent-Length: 3\r\n\r\nabc",
    "a bare LF at the end": b"Host: h\r\nContent-Length: 3\r\n\nabc",
    "a bare CR": b"Host: h\rX: y\r\nContent-Length: 3\r\n\r\nabc",
    "a folded field": b"Host: h\r\nX: y\r\n z\r\nContent-Length: 3\r\n\r\nabc",
    "a folded encoding": b"Host: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "another encoding": b"Host: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two encodings": b"Host: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, then another": b"Host: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an encoding twice": b"Host: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": b"Content-Length: 3\r\n\r\nabc",
    "two hosts": b"Host: h\r\nHost: g\r\nContent-Length: 3\r\n\r\nabc",
    "two tokens": b"Host: h\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "a chunk that ends with LF": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "a chunk of 0x3": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a negative chunk": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    "a chunk of 68 bits": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n1ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk that is longer": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "an LF in an extension": b"Host: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
    "a NUL": b"Host: h\r\nX: \0\r\n\r\n",
    "no colon": b"Host: h\r\nabc\r\n\r\n",
    "no name": b"Host: h\r\n: abc\r\n\r\n",
    "a body and an upgrade": b"Host: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("path", ["/v1/pilot/enrol", "/v1/submissions", "/v1/uploads/" + "a" * 64])
def test_a_request_that_can_be_read_in_two_ways_is_refused(server: Instance, path: str, odd: str) -> None:
    method = "PUT" if "uploads" in path else "POST"
    with Raw(server) as raw:
        raw.send(f"{method} {path} HTTP/1.1\r\n".encode() + ODD[odd] + SMUGGLED)
        assert code(raw.answer()) == (400, "invalid-input")
        assert raw.ended(), "what stands behind it was answered too"


@pytest.mark.parametrize(
    "line",
    [
        b"GET /live HTTP/2.0\r\n",
        b"GET /live HTTP/0.9\r\n",
        b"GET /live\r\n",
        b"GET /live HTTP/1.1\n",
        b"G\x00T /live HTTP/1.1\r\n",
        b"CONNECT here:80 HTTP/1.1\r\n",
        b"GET /\xff HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_first_line_that_is_not_taken(server: Instance, line: bytes) -> None:
    with Raw(server) as raw:
        raw.send(line + b"Host: here\r\n\r\n")
        assert code(raw.answer()) == (400, "invalid-input")
        assert raw.ended()


def deep(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def whole(**changed: object) -> bytes:
    return json.dumps({**json.loads(ENROL), **changed}).encode()


BAD_BODIES = [
    b"",
    b"\xff\xfe",
    b'{"secret":"\xff"}',
    b'{"secret":"x","index":0,"nonce":"\xc3"}',
    deep(5000),
    b'{"incarnation":1,"reports":' + b"[" * 60_000,
    b'{"incarnation":1,"unknown":' + deep(5000) + b"}",
    b'{"secret":"s","index":0,"nonce":"n","unknown":' + deep(5000) + b"}",
    b"null",
    b"[]",
    b'"x"',
    b"NaN",
    b'{"incarnation":NaN}',
    b'{"incarnation":1e999}',
    b'{"incarnation":"1"}',
    b'{"incarnation":1,"take":7}',
]


@pytest.mark.parametrize(
    "body", [*BAD_BODIES, whole(index=2**70), whole(index=-(2**63) - 1), whole(index="0")]
)
@pytest.mark.parametrize("path", ["/v1/pilot/enrol", "/v1/pilot/exchange", "/v1/pilot/exchange?x=1"])
def test_a_body_that_is_no_message_is_a_mistake_of_its_sender(
    server: Instance, path: str, body: bytes
) -> None:
    """And nothing is written to the log, which anybody could fill."""
    before = server.log()
    with Raw(server) as raw:
        for _ in range(2):
            raw.send(request(path, body, "Authorization: Bearer nobody"))
            assert code(raw.answer()) == (400, "invalid-input")
    assert server.log() == before


@pytest.mark.parametrize("field", ["secret", "nonce", "hostname", "batch_id", "version"])
@pytest.mark.parametrize("text", ['"\\ud800"', '"\\u0000"', '"' + "a" * 50_000 + '"'])
def test_a_text_that_no_database_holds(server: Instance, field: str, text: str) -> None:
    before = server.log()
    body = json.dumps({**json.loads(ENROL), field: "HERE"}).replace('"HERE"', text).encode()
    with Raw(server) as raw:
        raw.send(request("/v1/pilot/enrol", body))
        assert raw.answer()[0] in (400, 401)
    assert server.log() == before


def test_no_request_of_a_stranger_is_logged(server: Instance) -> None:
    before = server.log()
    for data in (
        b"nonsense\r\n\r\n",
        LIVE + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        HOT + b"X\r\n\r\n",
    ):
        with Raw(server) as raw:
            raw.send(data)
            raw.answer()
    with Raw(server) as raw:
        raw.send(f"PUT /v1/uploads/{'a' * 64} HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n".encode())
        raw.send(f"Authorization: Bearer {token_of(server)}\r\n\r\nnot all".encode())
        until(lambda: list((server.home / "sandboxes" / "partial").iterdir()), what="the upload's beginning")
    until(lambda: not list((server.home / "sandboxes" / "partial").iterdir()), what="the upload's end")
    with Raw(server) as raw:
        raw.send(request("/v1/whoami", b"", "Authorization: Bearer nobody", method="GET"))
        assert raw.answer()[0] == 401
    assert server.log() == before


def test_the_limit_of_open_files_is_raised_for_the_server_and_not_for_jobs(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        instance = Instance(tmp_path)
        instance.forked = False  # Forks have the limits of the process that they are forks of.
        instance.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        assert instance.process is not None
        raised, _ = resource.prlimit(instance.process.pid, resource.RLIMIT_NOFILE)
        assert raised == min(hard, MAX_CONNECTIONS + RESERVED_FILES)
        instance.apply()
        done = instance.cli("submit", "--wait", "--", "/bin/sh", "-c", "ulimit -Sn")
        assert done.returncode == 0, done.stderr
        assert instance.cli("logs", "1").stdout.strip() == "300"
    finally:
        instance.close()
