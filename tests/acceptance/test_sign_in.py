"""People and programs sign in by a real OpenID Connect provider."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pilotage.client import Client
from pilotage.client.issuer_sign_in import KeptSignIn
from pilotage.client.login import log_out
from pilotage.core.errors import Forbidden, NotAuthenticated
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until
from tests.oidc import AUDIENCE, CLIENT, OidcProvider, approve
from tests.ports import free_port

POLICY = """
[groups.production]
share = 1
[users.service]
groups = ["others", "production"]
[issuers.iam]
url = "{url}"
client = "{client}"
audience = ["{audience}"]
scopes = ["openid", "offline_access"]
[issuers.iam.groups]
"/exp/analysis" = "others"
"/exp/production" = "production"
"""


@pytest.fixture(scope="module")
def instance(oidc: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("server"), idle=60, lease=600, owners="any") as made:
        tables = POLICY.format(url=oidc.url, client=CLIENT, audience=AUDIENCE)
        made.policy = made.policy.rstrip() + tables
        made.apply()
        yield made


def log_in(
    instance: Instance, home: Path, user: str, *words: str, refuse: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `pilotage login`, and open the address that it prints as this user."""
    command = [sys.executable, "-m", "pilotage.main", "login", instance.url, "--issuer", "iam"]
    process = subprocess.Popen(
        [*command, "--home", str(home), *words],
        env=instance.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    if found := re.search(r"Open (http\S+)", first):
        approve(found[1], user, refuse=refuse)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, out, first + err)


def test_a_person_signs_in_with_a_browser_and_works(instance: Instance, tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = log_in(instance, home, "alice")
    assert done.returncode == 0, done.stderr
    assert "logged in as alice (others)" in done.stdout
    assert {file.name: file.stat().st_mode & 0o777 for file in home.iterdir()} == dict.fromkeys(
        ("issuer.json", "server.json", "token"), 0o600
    )
    with Client.connect(home=home) as client:
        job = client.submit({"executable": "true"}).first
        until(lambda: client.job(job).job.state == "Done", what="the end of the job")
        [row] = [token for token in client.tokens() if token.revoked is None]
        assert (row.user, row.issued_by) == ("alice", "iam")
        # A token that is over is replaced by a new one of the issuer, and the command goes on.
        instance.client().revoke_token(row.id)
    with Client.connect(home=home) as client:
        assert client.whoami().user == "alice"
    assert "iam" in instance.cli("issuer", "list").stdout


def test_two_programs_renew_at_the_same_time(instance: Instance, tmp_path: Path) -> None:
    """The provider ends a sign-in whose refresh token is used twice."""
    home = tmp_path / "home"
    assert log_in(instance, home, "alice").returncode == 0
    for _ in range(3):
        with Client.connect(home=home) as client:
            instance.client().revoke_token(max(row.id for row in client.tokens()))
        found: list[str] = []

        def ask(found: list[str] = found) -> None:
            with Client.connect(home=home) as client:
                found.append(client.whoami().user)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["alice"] * 4


def test_a_logout_ends_the_sign_in_at_the_issuer(instance: Instance, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert log_in(instance, home, "alice").returncode == 0
    copied = (home / "issuer.json").read_bytes()
    program = [sys.executable, "-m", "pilotage.main", "logout", "--home", str(home)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=instance.environment)
    assert (done.stdout, done.stderr) == ("logged out\n", "")
    assert not (home / "issuer.json").exists()
    thief = KeptSignIn(tmp_path / "issuer.json")
    thief.path.write_bytes(copied)
    with pytest.raises(NotAuthenticated, match="is over"):
        thief.renew()


def test_a_logout_without_the_issuer_removes_the_files_and_says_so(
    instance: Instance, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert log_in(instance, home, "alice").returncode == 0
    kept = json.loads((home / "issuer.json").read_text())
    for address, problem in (
        ("", "lets no program end a sign-in"),
        (f"http://127.0.0.1:{free_port()}/", "does not answer"),
        (kept["revocation_endpoint"] + "/nothing", "status 404|does not end the sign-in"),
    ):
        (home / "issuer.json").write_text(json.dumps({**kept, "revocation_endpoint": address}))
        done = log_out(home)
        assert done.removed
        assert re.search(problem, done.problem), done.problem
        assert not (home / "issuer.json").exists()


@pytest.mark.parametrize(
    ("user", "refuse", "words", "reason"),
    [
        ("alice", True, (), "refused"),
        ("bob", False, (), "in no group here"),
        ("eve", False, (), "no user eve"),
        ("alice", False, ("--group", "home"), "not in group home"),
    ],
)
def test_a_sign_in_that_gives_nothing_leaves_no_file(
    instance: Instance, tmp_path: Path, user: str, refuse: bool, words: tuple[str, ...], reason: str
) -> None:
    done = log_in(instance, tmp_path / "home", user, *words, refuse=refuse)
    assert done.returncode
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("home/*"))


def test_a_new_user_is_accepted_where_the_policy_says_so(instance: Instance, tmp_path: Path) -> None:
    before = instance.policy
    try:
        instance.policy = before.replace(
            "[issuers.iam.groups]", 'new_users = "accept"\n[issuers.iam.groups]\n"/exp" = "others"'
        )
        instance.apply()
        done = log_in(instance, tmp_path / "home", "carol")
        assert "logged in as carol (others)" in done.stdout, done.stderr
        history = instance.cli("policy", "history").stdout
        assert "signed in at issuer iam" in history
        assert "policy: new user carol" in instance.cli("audit", "--user", "carol").stdout
    finally:
        instance.policy = before
        instance.apply()
    with pytest.raises((Forbidden, NotAuthenticated)), Client.connect(home=tmp_path / "home") as client:
        client.whoami()


def test_programs_send_tokens_of_the_issuer_themselves(instance: Instance, oidc: OidcProvider) -> None:
    with Client(instance.url, oidc.service_token(), patience=0) as client:
        assert (client.whoami().user, client.whoami().group) == ("service", "others")
        assert client.submit({"executable": "true"}).first
    with Client(instance.url, oidc.service_token("compute.read"), patience=0) as reader:
        assert list(reader.jobs(newest=True))
        with pytest.raises(Forbidden, match=r"does not allow compute\.create"):
            reader.submit({"executable": "true"})
        with pytest.raises(Forbidden, match="cannot be exchanged"):
            reader.exchange(oidc.service_token("compute.read"), "")
        own = reader.exchange(oidc.service_token(), "").token
    refresh = httpx.post(
        f"{instance.url}/v1/tokens/refresh", headers={"Authorization": f"Bearer {own}"}, timeout=PATIENCE
    )
    assert refresh.status_code == 403
    assert "new sign-in" in refresh.text


def test_a_program_in_several_groups_chooses_one(instance: Instance, oidc: OidcProvider) -> None:
    url, token = instance.url, oidc.service_token()
    with Client(url, token, group="production", patience=0) as client:
        assert client.whoami().group == "production"
    for group in ("analysis", "admins", "gruppe é 中"):
        with (
            Client(url, token, group=group, patience=0) as client,
            pytest.raises(Forbidden, match="service is not in group"),
        ):
            client.whoami()
    with Client(url, token, patience=0) as client:
        own = client.exchange(token, "").token
    with Client(url, own, group="others", patience=0) as client:
        assert client.whoami().group == "others"
    with (
        Client(url, own, group="production", patience=0) as client,
        pytest.raises(Forbidden, match="is for group"),
    ):
        client.whoami()


def test_an_issuer_that_is_away_is_told_and_valid_sessions_go_on(
    instance: Instance, oidc: OidcProvider, tmp_path: Path
) -> None:
    token = oidc.service_token()
    with Client(instance.url, token, patience=0) as client:
        assert client.whoami().user == "service"
        oidc.stop()
        try:
            assert client.whoami().user == "service"
            tested = instance.cli("issuer", "test", "iam")
            assert tested.returncode == 1
            assert "does not answer" in tested.stdout
            done = log_in(instance, tmp_path / "home", "alice")
            assert done.returncode
            assert "does not answer" in done.stderr
        finally:
            oidc.start()
    assert instance.cli("issuer", "test", "iam").returncode == 0
    # It has another key now, so tokens of the time before count no more.
    with Client(instance.url, token, patience=0) as client, pytest.raises(NotAuthenticated):
        client.whoami()
    with Client(instance.url, oidc.service_token(), patience=0) as client:
        assert client.whoami().user == "service"
