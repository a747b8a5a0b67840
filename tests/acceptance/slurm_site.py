"""A server in one network and a Slurm in another: pilots reach the server over TLS and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import slurm
from tests.acceptance.test_slurm import SLURM_CE
from tests.deadlines import PATIENCE
from tests.instance import Instance, until
from tests.namespaces import SERVER_ADDRESS, Namespace, joined_namespaces


@dataclass
class SlurmSite:
    """The server can be reached by its command line only."""

    server: Instance
    cluster: slurm.Cluster
    network: Namespace
    """The server's."""

    def json(self, *words: str) -> Any:
        """The answer of a command that was called with --json."""
        done = self.server.cli(*words)
        assert done.returncode == 0, done.stderr + self.server.log()
        return json.loads(done.stdout)

    def submit(self, count: int, command: str) -> str:
        """Submit jobs, which run a command of the shell each; the id of their submission."""
        lines = self.server.home / "numbers.txt"
        lines.write_text("".join(f"{number}\n" for number in range(count)))
        sent = self.json("submit", "--json", "--params-from", str(lines), "--", "sh", "-c", f"{command} # %s")
        return str(sent["submissions"][0]["submission"])

    def wait(self, submission: str, count: int, within: float = 2 * PATIENCE) -> None:
        """Wait until all jobs are done."""
        until(lambda: self.states(submission) == {"Done": count}, within, f"the end of {count} jobs")

    def states(self, submission: str) -> dict[str, int]:
        states: dict[str, int] = {}
        for job in self.json("status", "-s", submission, "--limit", "10000", "--json")["jobs"]:
            states[job["state"]] = states.get(job["state"], 0) + 1
        return states

    def pilots(self) -> list[dict[str, Any]]:
        return list(self.json("pilot", "list", "--all", "--json")["pilots"])

    def assert_all_ended(self) -> None:
        """No batch job and no live pilot is left."""
        until(lambda: not self.cluster.run("squeue", "-h"), what="the end of all batch jobs")
        until(lambda: all(pilot["ended"] for pilot in self.pilots()), what="the end of all pilots")


@contextmanager
def slurm_site(folder: Path, local_processors: int = 1, **ce: str) -> Iterator[SlurmSite]:
    """`ce` replaces keys of the CE slurm. There is a CE local too, in the server's network."""
    slurm.require()
    with joined_namespaces() as (network, nodes), slurm.cluster(network=nodes) as cluster:
        server = Instance(folder, processors=local_processors)
        lines = [line for line in SLURM_CE.splitlines() if line.partition(" =")[0] not in ce]
        section = "\n".join([*lines, *(f"{key} = {value}" for key, value in ce.items()), "\n"])
        server.policy = server.policy.replace("[jobs]", section + "[jobs]")
        server.network = network
        server.environment = cluster.environment
        try:
            server.start("--listen", SERVER_ADDRESS)
            document = folder / "policy.toml"
            document.write_text(server.policy)
            done = server.cli("policy", "apply", str(document))
            assert done.returncode == 0, done.stderr
            yield SlurmSite(server, cluster, network)
        finally:
            server.close()
