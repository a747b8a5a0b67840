"""A service that sends a byte now and then never holds a call for longer than the one deadline of the whole call."""

from __future__ import annotations

import ast
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pilotage.outside
from pilotage.core.errors import PilotageError, Unreachable
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.batch.https_connection import HttpsConnection
from pilotage.outside.catalogue.rucio import session
from pilotage.outside.catalogue.rucio.session import RucioSession
from pilotage.outside.identity import documents
from pilotage.outside.identity.model import CodeGrant
from pilotage.outside.mail import smtp
from pilotage.outside.mail.smtp import MailOutcome, OutgoingMail, send_mail
from pilotage.outside.storage import s3
from pilotage.outside.storage.s3 import S3Place

BOUNDED = {
    "call_deadlines.py",
    "batch/https_connection.py",
    "catalogue/rucio/session.py",
    "identity/documents.py",
    "mail/smtp.py",
    "storage/s3.py",
}
SENDS_NOTHING = {"batch/arc/rest.py"}
"""It only knows the errors of the connection."""
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


def _rucio(port: int) -> str:
    asked = RucioSession(RucioOptions(url=f"http://127.0.0.1:{port}", timeout=0.6))
    with pytest.raises(Unreachable) as refused:
        asked.version()
    asked.close()
    return str(refused.value)


def _s3(port: int) -> str:
    place = S3Place(S3Options(endpoint=f"http://127.0.0.1:{port}", bucket="b"))
    with pytest.raises(PilotageError) as refused:
        place.check(0.0)
    place.close()
    return str(refused.value)


def _arc(port: int) -> str:
    connection = HttpsConnection("127.0.0.1", port, ssl.create_default_context(), 0.3)
    # The service speaks no TLS: the connection is made by hand.
    connection._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.3)  # type: ignore[assignment]
    with pytest.raises((OSError, http.client.HTTPException)) as refused:
        connection.send("GET", "/", b"", {})
    connection._connection.close()
    return f"{type(refused.value).__name__} {refused.value}"


@pytest.mark.parametrize("call", [_issuer, _code, _mail, _rucio, _s3, _arc])
def test_a_dripping_service_ends_at_the_deadline(
    dripping: tuple[int, threading.Event], call: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "WHOLE", 0.5)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    for module in (documents, smtp, s3):
        monkeypatch.setattr(module, "WHOLE", 0.3)
    monkeypatch.setattr(smtp, "TIMEOUT", 0.3)
    port, whole = dripping
    reason = call(port)
    assert not whole.is_set(), "the call has waited for the last byte"
    # An answer that is wrong in its first line is refused at once.
    assert any(
        words in reason for words in ("took longer than 0.3 s", "it answers -1", "illegal", "BadStatusLine")
    ), reason


def test_every_module_that_opens_connections_has_the_deadline_or_is_known() -> None:
    root = Path(pilotage.outside.__file__).parent
    found = set[str]()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if {"httpx", "smtplib", "http.client", "urllib.request"} & set(names):
                found.add(str(path.relative_to(root)))
    assert found == BOUNDED | SENDS_NOTHING
    for name in BOUNDED:
        text = (root / name).read_text()
        assert "one_deadline(" in text or ".call()" in text or "call(self)" in text, name
