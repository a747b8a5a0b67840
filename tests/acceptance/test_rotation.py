"""The server's certificate is replaced under running pilots, waiting pilots and users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.server.process.certificates import LIFETIME, make_certificate
from tests.acceptance.https_site import Site, https_site
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.namespaces import SERVER_ADDRESS


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with https_site(tmp_path, processors=1) as made:
        yield made


def rotate(site: Site, *options: str) -> None:
    """Rotate, and wait until the running server has taken it up."""
    before = site.fingerprints
    done = site.server.cli("server", "certificate", "rotate", *options)
    assert done.returncode == 0, done.stderr
    until(lambda: site.fingerprints != before, what="the new certificates in server.json")


@pytest.fixture(autouse=True)
def ends_held_job(tmp_path: Path) -> Iterator[None]:
    """A test that fails may leave a payload whose pilot is gone."""
    yield
    (tmp_path / "end").touch()


def held_job(site: Site, folder: Path) -> tuple[int, Path]:
    """A running job, and the file that ends it."""
    end = folder / "end"
    job = site.submit("sh", "-c", f"while [ ! -e {end} ]; do sleep 0.05; done")
    until(lambda: "Running" in site.server.cli("status", str(job)).stdout, what="the start of the job")
    return job, end


def restart(site: Site) -> None:
    """No connection with the old certificate is left."""
    site.server.kill_server()
    site.start()


def pilots(site: Site) -> list[dict[str, Any]]:
    shown = site.server.cli("pilot", "list", "--json")
    found: list[dict[str, Any]] = json.loads(shown.stdout)["pilots"]
    return found


def attempts(site: Site, job: int) -> int:
    """How many pilots have been given the job."""
    shown = site.server.cli("status", str(job), "--json")
    assert shown.returncode == 0, shown.stderr
    found: int = json.loads(shown.stdout)["job"]["attempt"]
    return found


def test_pilots_and_users_learn_the_next_certificate_before_it_is_used(site: Site, tmp_path: Path) -> None:
    """The replaced certificate is forgotten at once: only the announcement can have told them."""
    job, end = held_job(site, tmp_path)
    user = tmp_path / "user"
    token = site.server.cli("token", "create", "alice").stdout
    old = site.fingerprints[0]
    assert site.user_cli(user, "login", f"{site.url}#sha256={old}", given=token).returncode == 0
    rotate(site)
    assert site.fingerprints[0] == old
    new = site.fingerprints[1]

    def known() -> list[str]:
        """The fingerprints that the user has after one more request."""
        assert site.user_cli(user, "whoami").returncode == 0
        return list(json.loads((user / "server.json").read_text())["fingerprints"])

    until(
        lambda: known() == [old, new], what="the announcement, once the server has read the new certificate"
    )
    seen = pilots(site)[0]["last_seen"]
    until(lambda: pilots(site)[0]["last_seen"] > seen + 1.0, what="two more messages of the pilot")
    rotate(site, "--activate", "--forget-previous")
    assert site.fingerprints == [new]
    restart(site)
    assert site.user_cli(user, "whoami").returncode == 0
    end.touch()
    site.wait(job)
    assert attempts(site, job) == 1


def test_a_waiting_pilot_that_knows_only_the_replaced_certificate_starts(site: Site, tmp_path: Path) -> None:
    """Its batch script was written before the rotation; it starts after the end of the rotation."""
    old = site.fingerprints[0]
    site.gate.touch()
    job = site.submit("echo", "here")
    until(lambda: pilots(site) and pilots(site)[0]["batch_id"], what="the start of a pilot")
    rotate(site)
    rotate(site, "--activate")
    restart(site)
    assert site.fingerprints[1] == old
    site.gate.unlink()
    site.wait(job)
    assert len(pilots(site)) == 1


def test_a_waiting_pilot_without_any_valid_pin_leaves_and_the_ce_says_why(site: Site) -> None:
    """The key has leaked: the replaced certificate is forgotten at once. A new pilot runs the job."""
    site.gate.touch()
    job = site.submit("echo", "here")
    until(lambda: pilots(site) and pilots(site)[0]["batch_id"], what="the start of a pilot")
    rotate(site)
    rotate(site, "--activate", "--forget-previous")
    restart(site)
    site.gate.unlink()
    cause = "it is another server, or has a new certificate"
    until(
        lambda: cause in site.server.cli("ce", "show", "local").stdout, within=2 * PATIENCE, what="the cause"
    )
    assert "pilotage server certificate show" in site.server.cli("ce", "show", "local").stdout
    site.wait(job)


def test_a_certificate_of_a_ca_is_used_and_its_end_is_announced_to_administrators(
    site: Site, tmp_path: Path
) -> None:
    """A user with the old pin goes on: the server still has the replaced certificate."""
    user, certificate, key = (tmp_path / name for name in ("user", "ca.pem", "key.pem"))
    token = site.server.cli("token", "create", "alice").stdout
    url = f"{site.url}#sha256={site.fingerprints[0]}"
    assert site.user_cli(user, "login", url, given=token).returncode == 0
    text = make_certificate([SERVER_ADDRESS], time.time() - LIFETIME.total_seconds() + 10.5 * 86400)
    begin = text.index("-----BEGIN CERTIFICATE")
    key.touch(mode=0o600)
    key.write_text(text[:begin])
    certificate.write_text(text[begin:])
    words = ("server", "certificate", "use", str(certificate))
    assert site.server.cli(*words).returncode == 2  # there is no key in it
    done = site.server.cli(*words, "--key", str(key), "--ca", str(certificate))
    assert done.returncode == 0, done.stderr
    until(lambda: not site.fingerprints, what="the certificate of the CA")
    warned = until(lambda: site.server.cli("status").stderr, what="the warning")
    assert "the certificate ends in 10 days" in warned
    restart(site)
    me = site.user_cli(user, "whoami")
    assert me.returncode == 0, me.stderr
    assert me.stderr == ""
    assert site.user_cli(tmp_path / "new", "login", site.url, given=token).returncode == 6
    done = site.user_cli(tmp_path / "new", "login", site.url, "--ca", str(certificate), given=token)
    assert done.returncode == 0, done.stderr
    assert site.run_job("echo", "here") == "here\n"
