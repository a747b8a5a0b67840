"""Jobs run in pilots that a real Slurm starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.instance import Instance, until

SLURM_CE = """\
[ces.slurm]
site = "here"
type = "slurm"
owners = "any"
pilot_processors = 2
pilot_memory = 1000
wall = 1500
max_waiting = 4
max_running = 8
listing_period = 0.5
submit_rate = 100
heartbeat = 0.5
lease = 60
information_expiry = 300
idle = 2
"""

MATCHED = """\
[director]
demand = "matched"
"""


@contextmanager
def instance_on(
    cluster: slurm.Cluster,
    folder: Path,
    environment: dict[str, str] | None = None,
    user: int | None = None,
    options: Sequence[str] = (),
    **ce: str,
) -> Iterator[Instance]:
    """A server whose only CE is this cluster. `ce` replaces keys of the CE. Its pilots end with it.

    `options`: those of `up`.
    """
    folder.mkdir(exist_ok=True)
    instance = Instance(folder, user)
    begin, _, rest = instance.policy.partition("[ces.local]")
    lines = [line for line in SLURM_CE.splitlines() if line.partition(" =")[0] not in ce]
    lines += [f"{key} = {value}" for key, value in ce.items()]
    section = "\n".join([*lines, ""])
    instance.policy = begin + section + MATCHED + "[jobs]" + rest.partition("[jobs]")[2]
    instance.environment = environment or cluster.environment
    try:
        instance.start(*options)
        instance.apply()
        yield instance
    finally:
        instance.close()
        cluster.cancel_all()


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8) as made:
        yield made


def test_jobs_run_in_pilots_of_slurm(cluster: slurm.Cluster, tmp_path: Path) -> None:
    with instance_on(cluster, tmp_path) as instance:
        client = instance.client()
        sent = client.submit(
            {"executable": "sh", "arguments": ["-c", "echo $SLURM_JOB_ID > /dev/null"]}, values=range(60)
        )
        selection = Selection(submission=sent.submission)
        until(lambda: client.counts(selection).final == 60, what="the end of all jobs")
        assert client.counts(selection).states == {"Done": 60}
        pilots = list(client.pilots())
        assert 1 <= len(pilots) <= 8
        assert all(pilot.ce == "slurm" and pilot.processors == 2 for pilot in pilots)
        # Idle pilots leave, and nothing of them stays in the batch system.
        until(lambda: not cluster.run("squeue", "-h"), what="the end of all batch jobs")
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")


def test_the_output_of_ended_pilots_goes_with_their_rows(cluster: slurm.Cluster, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with instance_on(cluster, tmp_path / "server") as instance:
        client = instance.client()
        text = client.policy().text + f'\n[ces.slurm.slurm]\nlog_folder = "{logs}"\n'
        client.apply_policy(text + "[retention]\npilots = 0\n")
        sent = client.submit({"executable": "true"}, values=range(3))
        selection = Selection(submission=sent.submission)
        until(lambda: client.counts(selection).final == 3, what="the end of the jobs")
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
        pilots = list(client.pilots())
        assert len(list(logs.iterdir())) == len(pilots) >= 2
        foreign = logs / "foreign-0.log"
        foreign.touch()
        instance.kill_server()
        # A pilot is kept for as long as one may live.
        with closing(sqlite3.connect(instance.home / "pilotage.db")) as connection, connection:
            connection.execute("UPDATE pilots SET ended = ended - 10000")
        instance.start()
        until(lambda: len(list(logs.iterdir())) == 2, what="the end of the files")
        newest = client.pilot(max(pilot.id for pilot in pilots)).stamp.replace("/", "-")
        assert {path.name for path in logs.iterdir()} == {f"{newest}.log", foreign.name}
