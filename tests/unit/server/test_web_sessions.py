"""Sessions of browsers: bound to their token, ended by time, use and sign-out; codes that work once."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.policy import Policy
from pilotage.server import session_file
from pilotage.server.recording.redaction import SeededSecrets
from pilotage.server.session_file import BETWEEN_WRITES, SessionFile
from pilotage.server.tokens import Caller, Issuer
from pilotage.server.web_sessions import (
    CODE_LIFETIME,
    IDLE,
    LONGEST,
    SESSIONS_OF_A_USER,
    WebSession,
    WebSessions,
)
from pilotage.services.pool.token_state import TokenState

POLICY = policies.parse('[groups.g]\nproperties = ["NORMAL_USER"]\n[users.ada]\ngroups = ["g"]\n')
NOW = 1_800_000_000.0


class Server:
    """Sessions with an issuer whose state the test changes."""

    def __init__(self) -> None:
        self.state = TokenState()
        self.policy: Policy = POLICY
        self.issuer = Issuer("k" * 48, "here", lambda: self.state)
        self.sessions = WebSessions()
        self.secrets = SeededSecrets(random.Random(1))

    def caller(self, number: int | None = 7, lifetime: float = 86400.0) -> Caller:
        token, _ = self.issuer.issue("ada", "g", NOW, lifetime, number=number)
        return self.issuer.read(token, self.policy, NOW)

    def standing(self, caller: Caller) -> Caller:
        return self.issuer.standing(caller, self.policy, NOW)

    def begin(self, **options: float) -> WebSession:
        return self.sessions.begin(self.caller(**options), self.issuer, NOW, self.secrets)  # type: ignore[arg-type]

    def find(self, key: str, now: float = NOW, *, idle: bool = False) -> Caller:
        read: Callable[[str], Caller] = lambda token: self.issuer.read(token, self.policy, now)  # noqa: E731
        return self.sessions.find(key, read, now, idle=idle)[1]


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_session_is_its_user_and_no_other_cookie_is(server: Server) -> None:
    session = server.begin()
    assert server.find(session.key).user == "ada"
    assert not server.find(session.key).administrator
    for key in ("", "x", session.form_token, session.token):
        with pytest.raises(NotAuthenticated):
            server.find(key)


def test_the_secrets_of_two_sessions_differ(server: Server) -> None:
    first, second = server.begin(), server.begin()
    assert len({first.key, second.key, first.form_token, second.form_token}) == 4


def test_a_session_ends_with_the_number_of_its_token(server: Server) -> None:
    session = server.begin()
    server.state = TokenState(revoked=frozenset({7}))
    with pytest.raises(NotAuthenticated, match="revoked"):
        server.find(session.key)


def test_a_session_ends_with_all_tokens_of_its_user(server: Server) -> None:
    session = server.begin(number=None)  # type: ignore[arg-type]
    server.state = TokenState(cutoffs={"ada": NOW + 5})
    with pytest.raises(NotAuthenticated, match="revoked"):
        server.find(session.key, NOW + 6)


def test_a_session_ends_when_its_user_is_removed_from_the_policy(server: Server) -> None:
    session = server.begin()
    server.policy = policies.parse('[groups.g]\n[users.bob]\ngroups = ["g"]\n')
    with pytest.raises(Forbidden):
        server.find(session.key)


def test_a_session_ends_with_its_token_and_after_its_longest_time(server: Server) -> None:
    short, long = server.begin(lifetime=100.0), server.begin()
    assert server.find(short.key, NOW + 99).user == "ada"
    with pytest.raises(NotAuthenticated):
        server.find(short.key, NOW + 101)
    at = NOW
    while at < NOW + LONGEST - IDLE:
        at += IDLE / 2
        assert server.find(long.key, at).user == "ada"
    with pytest.raises(NotAuthenticated):
        server.find(long.key, NOW + LONGEST + 1)


def test_a_session_ends_if_nobody_uses_it_though_a_page_is_open(server: Server) -> None:
    session = server.begin()
    server.find(session.key, NOW + IDLE / 2, idle=True)
    with pytest.raises(NotAuthenticated, match="not used"):
        server.find(session.key, NOW + IDLE + 1)
    with pytest.raises(NotAuthenticated, match="not signed in"):
        server.find(session.key, NOW)


def test_sign_out_ends_the_session_and_no_other(server: Server) -> None:
    first, second = server.begin(), server.begin()
    server.sessions.end(first.key)
    with pytest.raises(NotAuthenticated):
        server.find(first.key)
    assert server.find(second.key).user == "ada"


def test_a_user_has_so_many_sessions_at_most(server: Server) -> None:
    sessions = [server.begin() for _ in range(SESSIONS_OF_A_USER + 1)]
    with pytest.raises(NotAuthenticated):
        server.find(sessions[0].key)
    assert all(server.find(session.key) for session in sessions[1:])


def test_a_code_works_once_and_for_a_minute(server: Server) -> None:
    code, expires = server.sessions.new_code(server.caller(), NOW, server.secrets)
    assert expires == NOW + CODE_LIFETIME
    with pytest.raises(NotAuthenticated):
        server.sessions.redeem(code + "x", server.standing, NOW)
    assert server.sessions.redeem(code, server.standing, NOW + CODE_LIFETIME - 1).user == "ada"
    with pytest.raises(NotAuthenticated, match="used already"):
        server.sessions.redeem(code, server.standing, NOW)
    late, _ = server.sessions.new_code(server.caller(), NOW, server.secrets)
    with pytest.raises(NotAuthenticated):
        server.sessions.redeem(late, server.standing, NOW + CODE_LIFETIME)


def test_a_further_code_replaces_the_one_before(server: Server) -> None:
    first, _ = server.sessions.new_code(server.caller(), NOW, server.secrets)
    second, _ = server.sessions.new_code(server.caller(), NOW, server.secrets)
    with pytest.raises(NotAuthenticated):
        server.sessions.redeem(first, server.standing, NOW)
    assert server.sessions.redeem(second, server.standing, NOW).user == "ada"


def restarted(server: Server, file: SessionFile) -> None:
    server.sessions = WebSessions(file.read())


@pytest.fixture
def file(tmp_path: Path) -> SessionFile:
    return SessionFile(tmp_path / "secrets" / "sessions.json")


def test_sessions_outlive_a_restart_with_their_forms_and_bounds(server: Server, file: SessionFile) -> None:
    session, ended, idle = server.begin(), server.begin(), server.begin()
    server.find(session.key, NOW + IDLE)
    server.sessions.end(ended.key)
    asyncio.run(file.write(server.sessions, NOW + IDLE + 1))
    restarted(server, file)
    assert server.find(session.key, NOW + IDLE + 2).user == "ada"
    found, _ = server.sessions.find(session.key, lambda _: server.caller(), NOW + IDLE + 2)
    assert (found.key, found.form_token) == (session.key, session.form_token)
    for other in (ended, idle):
        with pytest.raises(NotAuthenticated, match="not signed in"):
            server.find(other.key, NOW + IDLE + 2)
    server.state = TokenState(revoked=frozenset({7}))
    with pytest.raises(NotAuthenticated, match="revoked"):
        server.find(session.key, NOW + IDLE + 2)


def test_the_file_signs_no_browser_in(server: Server, file: SessionFile, tmp_path: Path) -> None:
    session = server.begin()
    asyncio.run(file.write(server.sessions, NOW))
    path = tmp_path / "secrets" / "sessions.json"
    assert session.key not in path.read_text()
    assert path.stat().st_mode & 0o77 == 0


def test_a_user_has_as_many_sessions_at_most_after_a_restart(server: Server, file: SessionFile) -> None:
    sessions = [server.begin() for _ in range(SESSIONS_OF_A_USER)]
    asyncio.run(file.write(server.sessions, NOW))
    restarted(server, file)
    server.begin()
    with pytest.raises(NotAuthenticated):
        server.find(sessions[0].key)
    assert server.find(sessions[1].key).user == "ada"


def test_uses_are_written_now_and_then(server: Server, file: SessionFile, tmp_path: Path) -> None:
    server.begin()
    asyncio.run(file.write(server.sessions, NOW))
    path = tmp_path / "secrets" / "sessions.json"
    path.unlink()
    asyncio.run(file.write_uses(server.sessions, NOW + BETWEEN_WRITES))
    assert not path.exists()
    asyncio.run(file.write_uses(server.sessions, NOW + BETWEEN_WRITES + 1))
    assert path.exists()


@pytest.mark.parametrize("text", ["", "[{}]", "\x00", "{}"])
def test_a_file_that_cannot_be_read_signs_nobody_in(file: SessionFile, tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets" / "sessions.json"
    path.parent.mkdir()
    path.write_text(text)
    assert file.read() == []


def test_a_full_disk_brings_no_ended_session_back(
    server: Server, file: SessionFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = server.begin()
    asyncio.run(file.write(server.sessions, NOW))
    server.sessions.end(session.key)

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(session_file, "write_private", refuse)
    asyncio.run(file.write(server.sessions, NOW))
    assert file.read() == []
    assert "No space left" in caplog.text
