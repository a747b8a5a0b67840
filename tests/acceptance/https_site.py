"""A server off loopback, between two network namespaces: clients and pilots reach it over TLS and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked
from tests.acceptance import pilots_elsewhere
from tests.deadlines import PATIENCE
from tests.instance import Instance
from tests.namespaces import SERVER_ADDRESS, Namespace, joined_namespaces


@dataclass
class Site:
    """A server in one network, whose pilots and users are in the other."""

    server: Instance
    users: Namespace
    gate: Path
    """While this file is there, pilots that start wait for its end, as in the queue of a batch system."""
    options: tuple[str, ...] = ()
    """Further ones of `pilotage up`."""

    @property
    def url(self) -> str:
        return f"https://{SERVER_ADDRESS}:{self.server.port}"

    @property
    def fingerprints(self) -> list[str]:
        found: list[str] = json.loads((self.server.home / "server.json").read_text())["fingerprints"]
        return found

    def start(self) -> None:
        self.server.start("--listen", SERVER_ADDRESS, *self.options)

    def submit(self, *command: str) -> int:
        """Submit a job; its id."""
        done = self.server.cli("submit", "--json", "--", *command)
        assert done.returncode == 0, done.stderr + self.server.log()
        return int(json.loads(done.stdout)["submissions"][0]["first"])

    def wait(self, *jobs: int) -> None:
        waited = self.server.cli("wait", *map(str, jobs))
        assert waited.returncode == 0, waited.stderr + self.server.log()

    def run_job(self, *command: str) -> str:
        """Submit a job, wait for it, and return its standard output."""
        job = self.submit(*command)
        self.wait(job)
        return self.server.cli("logs", str(job)).stdout

    def user_cli(self, home: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A command of a user in the other network, with a home of their own."""
        with tempfile.TemporaryFile("w+") as stdin:
            stdin.write(given)
            stdin.seek(0)
            return forked.run(
                ["-m", "pilotage.main", "--home", str(home), *words],
                environment=os.environ,
                stdin=stdin,
                timeout=PATIENCE,
                network=self.users,
            )


@contextmanager
def https_site(folder: Path, *options: str, **policy: Any) -> Iterator[Site]:
    with joined_namespaces() as (network, users):
        wrapper, gate = folder / "python", folder / "gate"
        # Only the pilot itself waits: by then the whole batch script has been read.
        wait = f'case "$1" in /proc/*) while [ -e {gate} ]; do sleep 0.05; done;; esac'
        wrapper.write_text(f'#!/bin/sh\n{wait}\nexec {" ".join(users.prefix)} {sys.executable} "$@"\n')
        wrapper.chmod(0o755)
        server = Instance(folder, **{"idle": 600, **policy})
        server.network = network
        server.program = (str(Path(pilots_elsewhere.__file__).resolve()), str(wrapper))
        site = Site(server, users, gate, options)
        try:
            if server.database_url:
                assert server.cli("db", "upgrade").returncode == 0
            site.start()
            document = folder / "policy.toml"
            document.write_text(server.policy)
            done = server.cli("policy", "apply", str(document))
            assert done.returncode == 0, done.stderr
            yield site
        finally:
            gate.unlink(missing_ok=True)
            server.close()
