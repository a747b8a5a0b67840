"""Strangers on the network: silent connections, slow handshakes and large bodies cost the server next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.https_site import Site, https_site
from tests.deadlines import PATIENCE
from tests.namespaces import SERVER_ADDRESS

SILENT = 10_000
PER_ADDRESS = 512

STRANGER = """
import resource, socket, sys
host, port, count, hello = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
most = max(count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, most))
held = []
for _ in range(count):
    held.append(socket.create_connection((host, port), WAIT))
    try:
        held[-1].sendall(hello)
    except OSError:
        pass
print("ready", flush=True)
sys.stdin.read()
"""

LARGE_BODY = """
import socket, ssl, sys
host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
connection = context.wrap_socket(socket.create_connection((host, port), WAIT))
head = f"{path} HTTP/1.1\\r\\nHost: here\\r\\nContent-Type: application/json\\r\\nAuthorization: Bearer x\\r\\n"
connection.sendall(f"{head}Content-Length: 30000000\\r\\n\\r\\n".encode())
connection.sendall(b" " * 100_000)  # the rest is never sent
print(connection.recv(12).decode())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with https_site(tmp_path_factory.mktemp("limits")) as made:
        yield made


@pytest.fixture(scope="module")
def user(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user who has logged in from the strangers' address."""
    home = tmp_path_factory.mktemp("user")
    token = site.server.cli("token", "create", "alice").stdout
    done = site.user_cli(home, "login", f"{site.url}#sha256={site.fingerprints[0]}", given=token)
    assert done.returncode == 0, done.stderr
    return home


@contextmanager
def strangers(site: Site, count: int, hello: bytes) -> Iterator[None]:
    """Connections from the users' address that say `hello` and then nothing."""
    words = [SERVER_ADDRESS, str(site.server.port), str(count), hello.hex()]
    process = subprocess.Popen(
        [*site.users.prefix, sys.executable, "-c", STRANGER.replace("WAIT", str(PATIENCE)), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.communicate(b"")


@pytest.mark.parametrize(
    "hello", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n"]
)
def test_connections_that_never_say_hello_lock_nobody_out(site: Site, user: Path, hello: bytes) -> None:
    assert site.server.process is not None
    files = Path(f"/proc/{site.server.process.pid}/fd")
    before = len(list(files.iterdir()))
    with strangers(site, SILENT if not hello else 1000, hello):
        me = site.user_cli(user, "whoami", "--json")
        assert json.loads(me.stdout)["user"] == "alice"
        assert len(list(files.iterdir())) <= before + PER_ADDRESS + 50
        assert site.run_job("echo", "here") == "here\n"


@pytest.mark.parametrize("path", ["POST /v1/pilot/exchange", "POST /v1/submissions", "PUT /v1/policy"])
def test_a_large_body_without_a_valid_token_is_refused_before_it_is_sent(site: Site, path: str) -> None:
    words = [SERVER_ADDRESS, str(site.server.port), path]
    done = subprocess.run(
        [*site.users.prefix, sys.executable, "-c", LARGE_BODY.replace("WAIT", str(PATIENCE)), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == "HTTP/1.1 401", done.stderr
