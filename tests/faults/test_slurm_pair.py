"""Two servers on one PostgreSQL submit to one Slurm; the one with the duty is killed in the middle of a submission."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.acceptance.test_slurm import SLURM_CE
from tests.deadlines import PATIENCE
from tests.faults.audit import audit_postgresql
from tests.faults.batch_frame import FaultyCommands, wait_for_use
from tests.faults.pair import Pair
from tests.faults.slurm_shape import SLURM, FaultyCluster
from tests.instance import Instance, until
from tests.postgres import server

pytestmark = pytest.mark.timeout(4 * PATIENCE)

JOBS = 6
MAX_WAITING, MAX_RUNNING = 3, 4


class PairAtOneAddress(Pair):
    """All pilots call the second server, as they would call an address that the servers share."""

    def launch(self, one: Instance, *, wait: bool = True) -> None:
        to_second = ("--pilot-server", f"http://127.0.0.1:{self.second.port}")
        one.start("--sandboxes", str(self.shared), *to_second, "--verbose", wait=wait)


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=1, processors=8, MessageTimeout="2") as made:
        yield made


@pytest.fixture
def faulty(cluster: slurm.Cluster, tmp_path: Path) -> FaultyCluster:
    return FaultyCommands(cluster, SLURM, tmp_path)


@pytest.fixture
def pair(faulty: FaultyCluster, tmp_path: Path) -> Iterator[Pair]:
    database = server().empty()
    made = PairAtOneAddress(tmp_path, server().tcp(database), lease=60, heartbeat=0.5)
    limits = {"settle": "2", "max_waiting": str(MAX_WAITING), "max_running": str(MAX_RUNNING)}
    lines = [line for line in SLURM_CE.splitlines() if line.partition(" =")[0] not in limits]
    section = "\n".join([*lines, *(f"{key} = {value}" for key, value in limits.items()), ""])
    for one in made.servers:
        begin, _, rest = one.policy.partition("[ces.local]")
        one.policy = begin + section + "[jobs]" + rest.partition("[jobs]")[2]
        one.environment = faulty.environment
    yield made
    made.close()
    server().drop(database)


@pytest.mark.parametrize("command", ["sbatch", "release"])
@pytest.mark.parametrize("fault", ["kill-server-before", "kill-server-after"])
def test_the_server_with_the_duty_dies_in_a_call(
    pair: Pair, faulty: FaultyCluster, command: str, fault: str
) -> None:
    """Between intent and id, between id and release, before and after Slurm has acted: the other server goes on."""
    pair.start()
    used = faulty.set(command, fault)
    sent = pair.first.client().submit({"executable": "sleep", "arguments": ["0.2"]}, values=range(JOBS))
    wait_for_use(used)
    first = pair.first.process
    until(
        lambda: first is not None and first.poll() is not None, what="the death of the server with the duty"
    )
    client, jobs = pair.second.client(), Selection(submission=sent.submission)
    most = 0

    def is_done() -> bool:
        nonlocal most
        listed = faulty.system.run("squeue", "-h", "--array", "-o", "%i").split()
        most = max(most, len(listed))
        return client.counts(jobs).states.get("Done") == JOBS

    until(is_done, 2 * PATIENCE, f"the end of {JOBS} jobs by the other server")
    assert most <= MAX_RUNNING + MAX_WAITING, "no submission was doubled"
    until(lambda: not faulty.system.run("squeue", "-h"), what="the end of all batch jobs")
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
    open_submissions = "SELECT stamp FROM pilot_submissions WHERE ended IS NULL"
    until(lambda: not pair.sql(open_submissions), what="a listing without any of its pilots")
    called = [pilot.batch_id for pilot in client.pilots() if pilot.started and pilot.batch_id]
    assert len(called) == len(set(called))
    assert audit_postgresql(pair.url) == {"Done": JOBS}
