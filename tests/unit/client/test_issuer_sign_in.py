"""Signing in by device code and renewing it, against an issuer that a test plays over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from pilotage.client.credentials import SIGN_IN_FILE, TokenFile, write_token
from pilotage.client.issuer_sign_in import DeviceCode, KeptSignIn, SignIn, sign_in
from pilotage.core.errors import Forbidden, InvalidInput, NotAuthenticated, PilotageError, Unreachable
from pilotage.server.tokens import Issuer
from pilotage.wire.identity import TokenResponse
from pilotage.wire.issuers import IssuerSummary
from tests.issuer import AUDIENCE, CLIENT, PlayedIssuer

NOW = 1_800_000_000.0


class Provider:
    """Answers the token endpoint with prepared documents, one for each question; the last one stays."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.forms: list[dict[str, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, provider.discovery)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                if self.path == "/device":
                    self._send(*provider.device)
                    return
                provider.forms.append(form)
                answers = provider.answers
                self._send(*(answers.pop(0) if len(answers) > 1 else answers[0]))

            def _send(self, status: int, document: object) -> None:
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.discovery: Any = {
            "issuer": self.url,
            "device_authorization_endpoint": f"{self.url}/device",
            "token_endpoint": f"{self.url}/token",
        }
        self.device: tuple[int, Any] = (
            200,
            {
                "device_code": "d",
                "user_code": "ABCD",
                "verification_uri": f"{self.url}/enter",
                "expires_in": 100,
                "interval": 5,
            },
        )
        self.tokens = PlayedIssuer(self.url)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def summary(self) -> IssuerSummary:
        return IssuerSummary("iam", self.url, CLIENT, ["openid"], [AUDIENCE])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    try:
        yield made
    finally:
        made.close()


def go(provider: Provider) -> tuple[str, SignIn, list[float], list[DeviceCode]]:
    pauses: list[float] = []
    shown: list[DeviceCode] = []
    token, kept = sign_in(provider.summary(), "analysis", shown.append, pauses.append)
    return token, kept, pauses, shown


def test_the_person_is_waited_for_at_the_pace_of_the_issuer(provider: Provider) -> None:
    access = provider.tokens.token(NOW)
    provider.answers = [
        (400, {"error": "authorization_pending"}),
        (400, {"error": "slow_down"}),
        (400, {"error": "authorization_pending"}),
        (200, {"access_token": access, "id_token": "other", "refresh_token": "r1"}),
    ]
    token, kept, pauses, shown = go(provider)
    assert (token, kept.refresh_token, kept.group) == (access, "r1", "analysis")
    assert pauses == [5, 5, 10, 10]
    assert shown == [DeviceCode(f"{provider.url}/enter", "ABCD", "")]
    assert all(form["device_code"] == "d" for form in provider.forms)


def test_an_opaque_access_token_gives_way_to_the_id_token(provider: Provider) -> None:
    proof = provider.tokens.token(NOW, aud=CLIENT)
    provider.answers = [(200, {"access_token": "opaque", "id_token": proof})]
    token, kept, _, _ = go(provider)
    assert (token, kept.refresh_token) == (proof, "")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((400, {"error": "access_denied"}), Forbidden, "refused"),
        ((400, {"error": "expired_token"}), NotAuthenticated, "in time"),
        ((400, {"error": "authorization_pending"}), NotAuthenticated, "in time"),
        (
            (400, {"error": "invalid_client", "error_description": "no such client"}),
            NotAuthenticated,
            "no such client",
        ),
        ((200, {"access_token": "opaque"}), NotAuthenticated, "no token that this server accepts"),
        (
            (200, {"access_token": 7, "id_token": ["a"]}),
            NotAuthenticated,
            "no token that this server accepts",
        ),
        ((500, b"<html>"), Unreachable, "status 500"),
        ((200, b"[]"), Unreachable, "another document"),
    ],
)
def test_other_answers_are_told(
    provider: Provider, answer: tuple[int, Any], kind: type[PilotageError], words: str
) -> None:
    provider.answers = [answer]
    with pytest.raises(kind, match=words):
        go(provider)


@pytest.mark.parametrize(
    "device",
    [
        (400, {"error": "unauthorized_client"}),
        (200, {"user_code": "A"}),
        (200, {"device_code": "d", "expires_in": "x"}),
    ],
)
def test_a_device_code_that_is_none(provider: Provider, device: tuple[int, Any]) -> None:
    provider.device = device
    with pytest.raises(PilotageError):
        go(provider)


def test_an_issuer_without_device_codes(provider: Provider) -> None:
    del provider.discovery["device_authorization_endpoint"]
    with pytest.raises(InvalidInput, match="device_authorization_endpoint"):
        go(provider)


def test_an_issuer_that_is_away() -> None:
    made = Provider()
    made.close()
    with pytest.raises(Unreachable, match="does not answer"):
        go(made)


class Calls:
    """The server's side: it exchanges tokens, and counts that."""

    def __init__(self) -> None:
        self.exchanged: list[tuple[str, str]] = []
        self.issuer = Issuer("key" * 20, "here")

    def refresh(self, token: str) -> TokenResponse:
        raise AssertionError("a token of an issuer is not refreshed")

    def exchange(self, token: str, group: str) -> TokenResponse:
        self.exchanged.append((token, group))
        return TokenResponse(
            *self.issuer.issue("alice", group, 4e9 + len(self.exchanged), 600), "alice", group
        )

    def ensure_home_token(self) -> None:
        raise AssertionError("no home of a server")


def kept_in(folder: Path, provider: Provider) -> KeptSignIn:
    kept = KeptSignIn(folder / SIGN_IN_FILE)
    kept.write(SignIn(provider.url, f"{provider.url}/token", CLIENT, [AUDIENCE], "analysis", "r1"))
    return kept


def test_a_refused_token_is_renewed_at_the_issuer_and_the_next_refresh_token_is_kept(
    provider: Provider, tmp_path: Path
) -> None:
    kept = kept_in(tmp_path, provider)
    access = provider.tokens.token(NOW)
    provider.answers = [(200, {"access_token": access, "refresh_token": "r2"})]
    old, _ = Issuer("key" * 20, "here").issue("alice", "analysis", 1e9, 600)
    write_token(tmp_path / "token", old)
    calls: Any = Calls()
    file = TokenFile(tmp_path / "token")
    assert file.current(calls) == old
    file.refused(old, NotAuthenticated("expired"), calls)
    assert calls.exchanged == [(access, "analysis")]
    assert file.current(calls) != old
    assert (tmp_path / "token").read_text().strip() == file.current(calls)
    assert json.loads(kept.path.read_text())["refresh_token"] == "r2"
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_two_processes_use_a_refresh_token_once(provider: Provider, tmp_path: Path) -> None:
    """Issuers end a sign-in whose old refresh token is used again."""
    kept_in(tmp_path, provider)
    provider.answers = [(200, {"access_token": provider.tokens.token(NOW), "refresh_token": "r2"})]
    old, _ = Issuer("key" * 20, "here").issue("alice", "analysis", 1e9, 600)
    write_token(tmp_path / "token", old)
    calls: Any = Calls()
    files = [TokenFile(tmp_path / "token") for _ in range(2)]
    for file in files:
        file.current(calls)
    threads = [
        threading.Thread(target=file.refused, args=(old, NotAuthenticated("expired"), calls))
        for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(provider.forms) == len(calls.exchanged) == 1
    assert files[0].current(calls) == files[1].current(calls)


def test_a_sign_in_that_is_over_says_what_to_do(provider: Provider, tmp_path: Path) -> None:
    kept = kept_in(tmp_path, provider)
    provider.answers = [(400, {"error": "invalid_grant"})]
    with pytest.raises(NotAuthenticated, match="is over") as over:
        kept.renew()
    assert "login" in over.value.hint
    kept.path.write_text("{}")
    with pytest.raises(NotAuthenticated, match="does not hold"):
        kept.renew()


def test_a_refresh_token_without_a_successor_stays(provider: Provider, tmp_path: Path) -> None:
    kept = kept_in(tmp_path, provider)
    provider.answers = [(200, {"access_token": provider.tokens.token(NOW)})]
    kept.renew()
    before = SignIn(**json.loads(kept.path.read_text()))
    assert before == replace(before, refresh_token="r1")
