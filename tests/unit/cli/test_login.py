"""`pilotage login` and `logout`: nothing is written before the server has accepted the token."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pilotage.server.process.certificates import make_certificate, make_server_context, read_certificate
from tests.deadlines import PATIENCE
from tests.unit.client.fake_server import State, serving, token

Cli = Callable[..., int]
OTHER = "0" * 64


@dataclass
class TlsServer:
    url: str
    state: State
    certificate: Path
    fingerprint: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    certificate = tmp_path / "server.pem"
    certificate.write_text(make_certificate(["127.0.0.1"], time.time()))
    with serving(make_server_context(certificate)) as (url, state):
        yield TlsServer(url, state, certificate, read_certificate(certificate).fingerprint)


@pytest.fixture
def secret() -> str:
    return token(time.time(), time.time() + 3600)


@pytest.fixture
def token_file(tmp_path: Path, secret: str) -> Path:
    file = tmp_path / "from-the-administrator"
    file.write_text(secret + "\n")
    return file


def written(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir()) if home.exists() else []


def test_a_login_is_all_that_later_commands_need(
    cli: Cli, server: TlsServer, token_file: Path, secret: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert cli("login", f"{server.url}#sha256={server.fingerprint}", "--token-file", token_file) == 0
    assert written(home) == ["server.json", "token"]
    assert [oct((home / name).stat().st_mode & 0o777) for name in written(home)] == ["0o600"] * 2
    assert (home / "token").read_text().strip() == secret
    server.state.tokens.clear()
    assert cli("queue", "list") == 0
    assert server.state.tokens == [f"Bearer {secret}"]
    assert cli("logout") == 0
    assert written(home) == []
    assert cli("queue", "list") == 6


def test_the_token_may_come_on_standard_input(
    cli: Cli, server: TlsServer, secret: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"  {secret}\n"))
    assert cli("login", f"{server.url}#sha256={server.fingerprint}") == 0
    assert (tmp_path / "home" / "token").read_text().strip() == secret


def test_a_prompt_shows_nothing_of_the_token(server: TlsServer, secret: str, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    url = f"{server.url}#sha256={server.fingerprint}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pilotage.main", "login", url],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=os.environ | {"PILOTAGE_HOME": str(tmp_path / "home")},
    )
    os.close(terminal)
    shown = b""
    with os.fdopen(controller, "r+b", buffering=0) as screen:
        while b"Token:" not in shown:
            shown += screen.read(1024)
        screen.write(secret.encode() + b"\n")
        try:
            while data := screen.read(1024):
                shown += data
        except OSError:  # the process has closed the terminal
            pass
    assert process.wait(PATIENCE) == 0, shown
    assert b"logged in as ada (lab)" in shown
    assert secret.encode() not in shown


def test_a_wrong_pin_is_refused_before_the_token_is_sent(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("login", f"{server.url}#sha256={OTHER}", "--token-file", token_file) == 6
    assert server.fingerprint in capsys.readouterr().err
    assert server.state.tokens == []
    assert written(tmp_path / "home") == []


def test_without_a_pin_a_ca_must_vouch_for_the_server(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("login", server.url, "--token-file", token_file) == 6
    assert "self-signed" in capsys.readouterr().err
    assert server.state.tokens == []
    assert cli("login", server.url, "--token-file", token_file, "--ca", server.certificate.name) == 0
    facts = json.loads((tmp_path / "home" / "server.json").read_text())
    assert facts["ca_file"] == str(server.certificate)
    assert cli("queue", "list") == 0
    both = f"{server.url}#sha256={server.fingerprint}"
    assert cli("login", both, "--token-file", token_file, "--ca", server.certificate) == 2


def test_a_refused_token_leaves_the_last_login_alone(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path
) -> None:
    url = f"{server.url}#sha256={server.fingerprint}"
    assert cli("login", url, "--token-file", token_file) == 0
    before = {name: (tmp_path / "home" / name).read_text() for name in ("server.json", "token")}
    server.state.failures.append((401, {"code": "not-authenticated", "message": "not valid"}))
    assert cli("login", url, "--token-file", token_file) == 3
    assert {name: (tmp_path / "home" / name).read_text() for name in before} == before


@pytest.mark.parametrize(
    "url",
    [
        "http://server.example.org:8443",
        "server:8443",
        "https://",
        "https://h:99999",
        "ftp://h",
        "https://h#md5=1",
    ],
)
def test_addresses_that_no_server_has(cli: Cli, url: str, token_file: Path, tmp_path: Path) -> None:
    assert cli("login", url, "--token-file", token_file) == 2
    assert written(tmp_path / "home") == []


def test_a_token_that_is_none(cli: Cli, server: TlsServer, tmp_path: Path) -> None:
    url = f"{server.url}#sha256={server.fingerprint}"
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("sha256")
    assert cli("login", url, "--token-file", nonsense) == 2
    assert cli("login", url, "--token-file", tmp_path / "absent") == 3
    assert server.state.tokens == []


def test_the_home_of_a_server_is_left_alone(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "instance.json").write_text("{}")
    assert cli("login", server.url, "--token-file", token_file) == 5
    assert cli("logout") == 5
    assert written(home) == ["instance.json"]


def test_a_command_turns_to_the_next_server(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path
) -> None:
    """Two addresses and two fingerprints; the first server is gone."""
    urls = f"https://127.0.0.1:1,{server.url}#sha256={OTHER},{server.fingerprint}"
    assert cli("login", urls, "--token-file", token_file) == 0
    server.state.requests.clear()
    assert cli("queue", "list") == 0
    assert server.state.requests == [("GET", "/v1/queues")]


def test_a_server_with_another_certificate_does_not_hide_the_right_one(
    cli: Cli, server: TlsServer, token_file: Path, tmp_path: Path
) -> None:
    impostor = tmp_path / "impostor.pem"
    impostor.write_text(make_certificate(["127.0.0.1"], time.time()))
    with serving(make_server_context(impostor)) as (url, state):
        assert (
            cli("login", f"{url},{server.url}#sha256={server.fingerprint}", "--token-file", token_file) == 0
        )
        assert state.tokens == []
