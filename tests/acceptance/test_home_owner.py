"""The owner of a home is never locked out of it; others are told what to do."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import jwt
import pytest

from pilotage.client import Client
from pilotage.core import policy as policies
from pilotage.core.errors import Overloaded
from pilotage.server.home_token import HomeToken
from pilotage.server.tokens import LIFETIME, Issuer
from tests.deadlines import PATIENCE
from tests.instance import POLICY, Instance, running

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("owner")) as one:
        yield one


def issuer_of(instance: Instance) -> Issuer:
    key = (instance.home / "secrets" / "signing.key").read_text().strip()
    return Issuer(key, json.loads((instance.home / "instance.json").read_text())["uuid"])


def down(instance: Instance) -> None:
    done = instance.cli("down")
    assert done.returncode == 0, done.stderr
    assert instance.process is not None
    assert instance.process.wait(PATIENCE) == 0


def write_home_token(instance: Instance, issued: float) -> str:
    with Client.connect(home=instance.home) as client:
        owner = client.whoami()
    token, _ = issuer_of(instance).issue(owner.user, owner.group, issued, home=True)
    (instance.home / "token").write_text(token)
    return token


@pytest.mark.slow
@pytest.mark.parametrize("age", [13 * HOUR, 31 * DAY, 400 * DAY])
def test_the_owner_after_a_night_and_after_a_month(instance: Instance, age: float) -> None:
    old = write_home_token(instance, time.time() - age)
    done = instance.cli("status")
    assert (done.returncode, done.stderr) == (0, "")
    file = instance.home / "token"
    assert file.read_text().strip() != old
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, "", "no token", "\x00\xff"])
def test_the_owner_without_a_token(instance: Instance, content: str | None) -> None:
    file = instance.home / "token"
    file.unlink()
    if content is not None:
        file.write_text(content, encoding="latin-1")
    assert instance.cli("whoami").returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_token_that_others_could_read_is_replaced(instance: Instance) -> None:
    file = instance.home / "token"
    before = file.read_text()
    file.chmod(0o644)
    with httpx.Client(base_url=instance.url, timeout=PATIENCE) as raw:
        assert raw.post("/v1/tokens/home").status_code == 204
    assert file.read_text() != before
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_asking_again_and_again_writes_nothing_and_tells_nothing(instance: Instance) -> None:
    instance.cli("whoami")
    file = instance.home / "token"
    before = (file.read_text(), file.stat().st_ino)
    with httpx.Client(base_url=instance.url, timeout=PATIENCE) as raw:
        for _ in range(20):
            answer = raw.post("/v1/tokens/home")
            assert (answer.status_code, answer.content) == (204, b"")
    assert (file.read_text(), file.stat().st_ino) == before


@pytest.mark.slow
def test_the_owner_whom_the_policy_forgets(instance: Instance) -> None:
    """Jobs need a group of the policy; looking, policies and stopping do not."""
    with Client.connect(home=instance.home) as client:
        owner = client.whoami().user
    without = instance.policy.replace(f"[users.{owner}]", "[users.carol]")
    with Client.connect(home=instance.home) as client:
        client.apply_policy(without)
    try:
        for age in (0.0, 13 * HOUR):
            token, _ = issuer_of(instance).issue(owner, "home", time.time() - age, home=True)
            (instance.home / "token").write_text(token)
            assert instance.cli("whoami").returncode == 0
            refused = instance.cli("submit", "--", "true")
            assert refused.returncode == 3, refused.stderr
            assert "Traceback" not in refused.stderr
    finally:
        with Client.connect(home=instance.home) as client:
            client.apply_policy(instance.policy)


@pytest.mark.slow
def test_others_are_told_what_to_do(instance: Instance, tmp_path: Path) -> None:
    file = tmp_path / "alice.token"
    token, _ = issuer_of(instance).issue("alice", "others", time.time() - 13 * HOUR)
    file.write_text(token)
    done = instance.cli("--token-file", str(file), "status")
    assert done.returncode == 3
    assert "pilotage token create alice --group others --out FILE" in done.stderr
    assert str(file) in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert file.read_text() == token


@pytest.mark.slow
def test_a_renewed_token_keeps_its_lifetime(instance: Instance, tmp_path: Path) -> None:
    file, now = tmp_path / "alice.token", time.time()
    token, _ = issuer_of(instance).issue("alice", "others", now - 2 * HOUR, 30 * DAY)
    file.write_text(token)
    assert instance.cli("--token-file", str(file), "status").returncode == 0
    claims = jwt.decode(file.read_text().strip(), options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 30 * DAY
    assert claims["iat"] >= int(now)
    assert "own" not in claims


@pytest.mark.slow
def test_a_new_key_and_a_stopped_server(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        write_home_token(instance, time.time() - DAY)
        old = (instance.home / "token").read_text()
        down(instance)
        assert "not running" in instance.cli("down").stdout
        (instance.home / "secrets" / "signing.key").unlink()
        (instance.home / "token").write_text(old)
        instance.start()
        (instance.home / "token").write_text(old)  # of the old key, and over
        assert instance.cli("status").returncode == 0
        write_home_token(instance, time.time() - DAY)
        down(instance)
        again = instance.cli("up", "--detach")
        try:
            assert again.returncode == 0, again.stderr
        finally:
            assert instance.cli("down", "--cancel-pilots").returncode == 0


def _home_token(path: Path, now: list[float]) -> HomeToken:
    policy = policies.parse(
        POLICY.format(owner="ada", owners="home", processors=1, heartbeat=1, lease=60, idle=1)
    )
    return HomeToken(path, Issuer("k" * 48, "here"), "ada", lambda: policy, lambda: now[0])


def test_steps_of_the_clock(tmp_path: Path) -> None:
    now, path = [1_800_000_000.0], tmp_path / "token"
    home = _home_token(path, now)
    for step in (0.0, LIFETIME, 400 * DAY, -500 * DAY, -1.0):
        now[0] += step
        before = path.read_text() if path.exists() else ""
        home.ensure()
        claims = jwt.decode(path.read_text().strip(), options={"verify_signature": False})
        assert LIFETIME / 2 <= claims["exp"] - now[0] <= LIFETIME + 1
        assert (path.read_text() != before) is (abs(step) != 1.0)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, path = [1_800_000_000.0], tmp_path / "token"
    home = _home_token(path, now)
    home.ensure()
    before = path.read_text()

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pilotage.server.home_token.write_private", full)
    now[0] += DAY
    home.ensure()
    assert path.read_text() != before
    claims = jwt.decode(path.read_text().strip(), options={"verify_signature": False})
    assert claims["iat"] == now[0]
    path.unlink()
    with pytest.raises(Overloaded, match="No space"):
        home.ensure()
    assert list(tmp_path.iterdir()) == []
