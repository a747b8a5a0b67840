"""Two servers of one pool over TLS, each with a certificate of its own. One is killed: pilots and users go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.https_site import Site, https_site
from tests.instance import Instance, until
from tests.namespaces import SERVER_ADDRESS
from tests.postgres import server


@dataclass
class Pool:
    site: Site
    """The first server. It starts the pilots."""
    second: Instance
    sandboxes: Path

    def start_second(self) -> None:
        """Start the second server, and wait until the first one announces it."""
        secrets = self.second.home / "secrets"
        secrets.mkdir(parents=True, mode=0o700)
        self.second.home.chmod(0o700)
        shutil.copy(self.site.server.home / "secrets" / "signing.key", secrets / "signing.key")
        self.second.start("--listen", SERVER_ADDRESS, "--sandboxes", str(self.sandboxes))
        whoami = ("whoami", "--json")
        until(
            lambda: json.loads(self.site.server.cli(*whoami).stdout)["servers"],
            what="the announcement of the second server",
        )


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    database = server().empty()
    second_folder, sandboxes = tmp_path / "second", tmp_path / "sandboxes"
    second_folder.mkdir()
    options = ("--sandboxes", str(sandboxes))
    try:
        with https_site(
            tmp_path, *options, database_url=server().url(database), processors=1, lease=600
        ) as site:
            second = Instance(second_folder, database_url=server().url(database))
            second.network = site.server.network
            try:
                yield Pool(site, second, sandboxes)
            finally:
                second.close()
    finally:
        server().drop(database)


def held_job(pool: Pool, folder: Path) -> tuple[int, Path]:
    """A running job, and the file that ends it."""
    end, begun = folder / "end", folder / "begun"
    job = pool.site.submit("sh", "-c", f"touch {begun}; while [ ! -e {end} ]; do sleep 0.05; done; echo done")
    until(begun.exists, what="the start of the job")
    return job, end


def last_seen(site: Site) -> float:
    [pilot] = json.loads(site.server.cli("pilot", "list", "--json").stdout)["pilots"]
    return float(pilot["last_seen"])


def test_a_running_pilot_and_a_user_turn_to_the_other_server(pool: Pool, tmp_path: Path) -> None:
    """Neither knew of the second server when they began."""
    site, user = pool.site, tmp_path / "user"
    job, end = held_job(pool, tmp_path)
    pool.start_second()
    token = site.server.cli("token", "create", "alice").stdout
    url = f"{site.url}#sha256={site.fingerprints[0]}"
    done = site.user_cli(user, "login", url, given=token)
    assert done.returncode == 0, done.stderr
    facts = json.loads((user / "server.json").read_text())
    assert facts["url"] == f"{site.url},https://{SERVER_ADDRESS}:{pool.second.port}"
    # The answer that names the second server has its fingerprint too.
    assert len(set(facts["fingerprints"])) == 2
    before = last_seen(site)
    until(lambda: last_seen(site) > before + 1.0, what="two more messages of the pilot")
    site.server.kill_server()
    end.touch()
    waited = pool.second.cli("wait", str(job))
    assert waited.returncode == 0, waited.stderr + pool.second.log()
    shown = json.loads(pool.second.cli("status", str(job), "--json").stdout)
    assert shown["job"]["attempt"] == 1
    me = site.user_cli(user, "whoami", "--json")
    assert json.loads(me.stdout)["user"] == "alice"


def test_a_pilot_whose_server_is_gone_before_it_starts_enrols_at_the_other(pool: Pool) -> None:
    site = pool.site
    pool.start_second()
    site.gate.touch()
    job = site.submit("echo", "here")
    listed = ("pilot", "list", "--json")
    until(
        lambda: (
            '"batch_id": "' in (shown := site.server.cli(*listed).stdout) and '"batch_id": ""' not in shown
        ),
        what="the start of a pilot",
    )
    site.server.kill_server()
    site.gate.unlink()
    waited = pool.second.cli("wait", str(job))
    assert waited.returncode == 0, waited.stderr + pool.second.log()
    pilots = json.loads(pool.second.cli("pilot", "list", "--json").stdout)["pilots"]
    assert len(pilots) == 1
