"""A server off loopback, between two network namespaces: clients and pilots reach it over TLS and nothing else."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance import pilots_elsewhere
from tests.instance import Instance
from tests.namespaces import CLIENT_ADDRESS, SERVER_ADDRESS, Namespace, joined_namespaces


@dataclass
class Site:
    """A server in one network, whose pilots and users are in the other."""

    server: Instance
    users: Namespace

    @property
    def url(self) -> str:
        return f"https://{SERVER_ADDRESS}:{self.server.port}"

    @property
    def fingerprints(self) -> list[str]:
        found: list[str] = json.loads((self.server.home / "server.json").read_text())["fingerprints"]
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("https")
    with joined_namespaces() as (network, users):
        wrapper = folder / "python"
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(users.prefix)} {sys.executable} "$@"\n')
        wrapper.chmod(0o755)
        server = Instance(folder, idle=600)
        server.prefix = network.prefix
        server.program = (str(Path(pilots_elsewhere.__file__).resolve()), str(wrapper))
        try:
            server.start("--listen", SERVER_ADDRESS)
            policy = folder / "policy.toml"
            policy.write_text(server.policy)
            done = server.cli("policy", "apply", str(policy))
            assert done.returncode == 0, done.stderr
            yield Site(server, users)
        finally:
            server.close()


def run_job(site: Site, *command: str) -> str:
    """Submit a job, wait for it, and return its standard output."""
    done = site.server.cli("submit", "--json", "--", *command)
    assert done.returncode == 0, done.stderr + site.server.log()
    sent = json.loads(done.stdout)
    job = str(sent["submissions"][0]["first"])
    waited = site.server.cli("wait", job)
    assert waited.returncode == 0, waited.stderr + site.server.log()
    return site.server.cli("logs", job).stdout


def test_a_job_runs_in_a_pilot_that_reaches_the_server_over_tls(site: Site) -> None:
    facts = json.loads((site.server.home / "server.json").read_text())
    assert facts["url"] == site.url
    assert len(facts["fingerprints"]) == 1
    output = run_job(site, shutil.which("ip") or "ip", "-o", "addr")
    assert CLIENT_ADDRESS in output
    assert SERVER_ADDRESS not in output
