"""A service that sends a byte now and then never holds a call for longer than the one deadline of the whole call."""

from __future__ import annotations

import ast
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pilotage.outside
from pilotage.core.errors import Unreachable
from pilotage.outside.identity import documents
from pilotage.outside.identity.model import CodeGrant
from pilotage.outside.mail import smtp
from pilotage.outside.mail.smtp import MailOutcome, OutgoingMail, send_mail

BOUNDED = {"identity/documents.py", "mail/smtp.py"}
NOT_YET = {
    "batch/https_connection.py": "ARC",
    "batch/arc/rest.py": "ARC",
    "catalogue/rucio/session.py": "Rucio",
    "storage/s3.py": "S3",
}
"""Modules that speak to outside services without one deadline for the whole call."""
BYTES = 1_000


@pytest.fixture(
    params=[b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"220 mail\r\n"]
)
def dripping(request: pytest.FixtureRequest) -> Iterator[tuple[int, threading.Event]]:
    """The port of a service that says its first words at once, and then drips; set when it was let drip to its end."""
    whole = threading.Event()
    stop, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(request.param)
                for _ in range(BYTES):
                    if stop.wait(0.01):
                        return
                    connection.sendall(b"2")
                whole.set()
            except OSError:
                return  # the call has cut it

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], whole
    stop.set()
    listener.close()


def _issuer(port: int) -> str:
    with pytest.raises(Unreachable) as refused:
        documents.read_documents(f"http://127.0.0.1:{port}/", "")
    return str(refused.value)


def _code(port: int) -> str:
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(Unreachable) as refused:
        documents.redeem_code(url, "", f"{url}token", CodeGrant("c", "v", "r", "client", ""))
    return str(refused.value)


def _mail(port: int) -> str:
    delivery = send_mail(f"127.0.0.1:{port}", OutgoingMail("a@x", "b@x", "s", "t"))
    assert delivery.outcome in (MailOutcome.LATER, MailOutcome.UNKNOWN)
    return delivery.reason


@pytest.mark.parametrize("call", [_issuer, _code, _mail])
def test_a_dripping_service_ends_at_the_deadline(
    dripping: tuple[int, threading.Event], call: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (documents, smtp):
        monkeypatch.setattr(module, "WHOLE", 0.3)
    monkeypatch.setattr(smtp, "TIMEOUT", 0.3)
    port, whole = dripping
    reason = call(port)
    assert not whole.is_set(), "the call has waited for the last byte"
    # An answer that is wrong in its first line is refused at once.
    assert any(words in reason for words in ("took longer than 0.3 s", "it answers -1", "illegal")), reason


def test_every_module_that_opens_connections_has_the_deadline_or_is_known() -> None:
    root = Path(pilotage.outside.__file__).parent
    found = set[str]()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if {"httpx", "smtplib", "http.client", "urllib.request"} & set(names):
                found.add(str(path.relative_to(root)))
    assert found == BOUNDED | NOT_YET.keys()
    assert all("one_deadline(" in (root / name).read_text() for name in BOUNDED)
