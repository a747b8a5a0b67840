"""Jobs and users over TLS, from another network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.https_site import Site, https_site
from tests.namespaces import CLIENT_ADDRESS, SERVER_ADDRESS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with https_site(tmp_path_factory.mktemp("https")) as made:
        yield made


def test_a_job_runs_in_a_pilot_that_reaches_the_server_over_tls(site: Site) -> None:
    facts = json.loads((site.server.home / "server.json").read_text())
    assert facts["url"] == site.url
    assert len(facts["fingerprints"]) == 1
    output = site.run_job(shutil.which("ip") or "ip", "-o", "addr")
    assert CLIENT_ADDRESS in output
    assert SERVER_ADDRESS not in output


def test_a_user_on_another_machine_logs_in(site: Site, tmp_path: Path) -> None:
    """What the administrator's commands print is what the user types and pipes in."""
    shown = site.server.cli("server", "certificate", "show", "--json")
    assert shown.returncode == 0, shown.stderr
    url = json.loads(shown.stdout)["login"]
    token = site.server.cli("token", "create", "alice").stdout
    wrong = site.user_cli(tmp_path, "login", f"{site.url}#sha256={'0' * 64}", given=token)
    assert wrong.returncode == 6
    assert site.fingerprints[0] in wrong.stderr
    done = site.user_cli(tmp_path, "login", url, given=token)
    assert done.returncode == 0, done.stderr
    assert "alice" in done.stdout
    me = site.user_cli(tmp_path, "whoami", "--json")
    assert json.loads(me.stdout)["user"] == "alice"
    assert site.user_cli(tmp_path, "logout").returncode == 0
    assert site.user_cli(tmp_path, "whoami").returncode == 6
