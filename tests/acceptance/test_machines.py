"""Pilots on machines without a batch system, each with its own processes and its own sshd."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.slurm_site import SlurmSite
from tests.deadlines import PATIENCE
from tests.instance import Instance, until
from tests.namespaces import SERVER_ADDRESS, Namespace, cut, joined_namespaces, with_second_address
from tests.ssh_server import LoginNode, login_node

pytestmark = pytest.mark.slow

CE = """\
[ces.lab]
site = "here"
type = "machines"
owners = "any"
pilot_processors = 1
max_waiting = 4
max_running = 4
listing_period = 0.5
submit_rate = 100
heartbeat = 0.5
settle = 1
"""


@dataclass
class Lab:
    """Two machines with two cores for pilots each."""

    site: SlurmSite
    machines: tuple[LoginNode, LoginNode]
    nodes: Namespace

    @property
    def server(self) -> Instance:
        return self.site.server

    def live(self) -> dict[int, dict[str, Any]]:
        """The pilots that run, by id."""
        return {pilot["id"]: pilot for pilot in self.site.pilots() if pilot["started"] and not pilot["ended"]}


@contextmanager
def lab(folder: Path, lease: float = 60.0, wall: float = 1500.0, cpu_power: float = 1.0) -> Iterator[Lab]:
    with (
        joined_namespaces() as (network, nodes),
        login_node(nodes, alone=True, name="ws1") as first,
        login_node(nodes, address=with_second_address(nodes), alone=True, name="ws2") as second,
    ):
        server = Instance(folder)
        hosts = ", ".join(f'"{machine.reach.removeprefix("ssh ")} 2"' for machine in (first, second))
        begin, _, rest = server.policy.partition("[ces.local]")
        section = f"{CE}lease = {lease}\nwall = {wall}\ncpu_power = {cpu_power}\nidle = 2\n"
        section += f"[ces.lab.machines]\nhosts = [{hosts}]\n"
        server.policy = begin + section + "[jobs]" + rest.partition("[jobs]")[2]
        server.network = network
        try:
            server.start("--listen", SERVER_ADDRESS)
            document = folder / "policy.toml"
            document.write_text(server.policy)
            done = server.cli("policy", "apply", str(document))
            assert done.returncode == 0, done.stderr
            yield Lab(SlurmSite(server, None, network), (first, second), nodes)  # type: ignore[arg-type]
        finally:
            server.cli("ce", "login", "--close")
            server.close()


def processes(found: Lab) -> list[str]:
    """The command lines of the server's pilots on all machines."""
    address = f"--server https://{SERVER_ADDRESS}:{found.server.port} "
    return [line for line in arguments().splitlines() if address in line]


def arguments() -> str:
    """The command lines of all processes."""
    return subprocess.run(["ps", "-e", "-o", "args="], capture_output=True, text=True, check=True).stdout


def test_jobs_run_on_both_machines(tmp_path: Path) -> None:
    with lab(tmp_path) as found:
        submission = found.site.submit(24, "sleep 0.5")
        found.site.wait(submission, count=24)
        batch_ids = [pilot["batch_id"] for pilot in found.site.pilots()]
        assert {batch_id.partition("@")[2] for batch_id in batch_ids} == {"ws1", "ws2"}
        until(lambda: all(pilot["ended"] for pilot in found.site.pilots()), what="the end of idle pilots")
        until(lambda: not processes(found), what="the end of their processes")


def test_a_machine_that_is_away_has_failed_nothing(tmp_path: Path) -> None:
    with lab(tmp_path, lease=600.0) as found:
        submission = found.site.submit(8, "sleep 10")
        until(lambda: len(found.live()) > 1, what="pilots")
        with cut(found.nodes):
            until(lambda: "unreachable" in state(found), 2 * PATIENCE, "the end of answers")
        found.site.wait(submission, count=8)
        assert all(job["attempt"] <= 1 for job in jobs(found, submission))
        assert not {"Failed", "Aborted"} & {pilot["state"] for pilot in found.site.pilots()}


def test_pilots_are_found_again_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with lab(tmp_path) as found:
        submission = found.site.submit(8, "sleep 5")
        until(lambda: len(found.live()) > 1, what="pilots")
        found.server.kill_server()
        found.server.start("--listen", SERVER_ADDRESS)
        found.site.wait(submission, count=8)
        assert all(job["attempt"] <= 1 for job in jobs(found, submission))
        assert not {"Failed", "Aborted"} & {pilot["state"] for pilot in found.site.pilots()}


def test_nothing_stays_when_the_pool_is_gone(tmp_path: Path) -> None:
    """Neither a job that runs, nor a pilot that keeps a result: their lease is over long before their wall."""
    with lab(tmp_path, lease=10.0) as found:
        sleep = f"sleep 31415.{os.getpid()}"
        gate = tmp_path / "gate"
        short = found.site.submit(2, f"until [ -e {gate} ]; do sleep 0.1; done")
        endless = found.site.submit(2, sleep)
        until(lambda: states(found, endless) == states(found, short) == {"Running"}, what="running jobs")
        assert processes(found)
        found.server.kill_server()
        gate.touch()
        until(lambda: not processes(found), 2 * PATIENCE, "the end of pilots without a pool")
        until(lambda: sleep not in arguments(), what="the end of their payloads")


def states(found: Lab, submission: str) -> set[str]:
    return {job["state"] for job in jobs(found, submission)}


def state(found: Lab) -> str:
    return str(found.site.json("ce", "list", "--json"))


def jobs(found: Lab, submission: str) -> list[dict[str, Any]]:
    return list(found.site.json("status", "-s", submission, "--limit", "100", "--json")["jobs"])
