"""CEs that a real Slurm refuses: the reason is stored and logged once, and nothing is submitted in a tight loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.ces import CeSummary
from tests import slurm
from tests.acceptance.test_slurm import SLURM_CE
from tests.faults.slurm_shape import most_tries
from tests.instance import Instance, started, until

WRONG = {
    "partition": ("[slurm]", 'partition = "nosuch"', "Invalid partition name specified"),
    "feature": ("[slurm]", 'constraint = "nosuch"', "Invalid feature specification"),
    "gres": ("[slurm]", 'gres = "nosuch:1"', "Invalid generic resource (gres) specification"),
    "reservation": ("[slurm]", 'reservation = "nosuch"', "Requested reservation is invalid"),
    "size": ("", "pilot_processors = 1000", "configuration not available"),
    "inactive": ("[slurm]", 'partition = "closed"', "not available"),
}
"""By CE: where the wrong key belongs, the key, and words of Slurm's refusal."""
CLOSED = ("feature", "gres", "inactive")
"""CEs where Slurm tells that no node can start their pilots. The policy says that they can, so Slurm refuses them."""
OPEN = 'GlueCEStateStatus = "Production"'
COUNTER = """\
#!/bin/sh
echo "$*" >> {calls}
exec {real} "$@"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=4) as made:
        made.run("scontrol", "create", "partitionname=closed", "nodes=n1", "state=inactive")
        yield made


def section(name: str, table: str, key: str) -> str:
    lines = SLURM_CE.replace("[ces.slurm]", f"[ces.{name}]").splitlines()
    if table:
        told = [f"[ces.{name}.attributes]", OPEN] if name in CLOSED else []
        return "\n".join([*lines, f"[ces.{name}.slurm]", key, *told, ""])
    kept = [line for line in lines if line.partition(" =")[0] != key.partition(" =")[0]]
    return "\n".join([*kept, key, ""])


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls") / "sbatch"


@pytest.fixture(scope="module")
def instance(
    cluster: slurm.Cluster, calls: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    """A server whose CEs are all wrong; its calls of sbatch are counted."""
    folder = tmp_path_factory.mktemp("server")
    programs = folder / "programs"
    programs.mkdir()
    real = cluster.run("sh", "-c", "command -v sbatch").strip()
    (programs / "sbatch").write_text(COUNTER.format(calls=calls, real=real))
    (programs / "sbatch").chmod(0o755)
    made = Instance(folder)
    made.policy = made.policy.partition("[ces.local]")[0] + "".join(
        section(name, table, key) for name, (table, key, _) in WRONG.items()
    )
    made.environment = {**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"}
    with started(made):
        yield made


def is_paused(ce: CeSummary, words: str) -> bool:
    return ce.state == "paused" and words in ce.reason and ce.until is not None


def test_each_refusal_is_told_once_and_pauses_its_ce(
    instance: Instance, cluster: slurm.Cluster, calls: Path
) -> None:
    client, begun = instance.client(), time.monotonic()
    jobs = {name: client.submit({"executable": "true", "grid_ces": [name]}).first for name in WRONG}

    def failed(times: int) -> bool:
        return all(client.ce(name).ce.alike >= times for name in WRONG)

    until(lambda: failed(2), what=f"two refusals of each: {client.ces()}")
    log = instance.log()
    for name, (_, _, words) in WRONG.items():
        told = [line for line in log.splitlines() if f"CE {name}:" in line]
        assert len(told) == 1, told
        assert words in told[0]
        # Each pause ends after a time, and is followed by a try and a longer pause.
        until(lambda name=name, words=words: is_paused(client.ce(name).ce, words), what=f"a pause of {name}")
        until(lambda words=words: words in instance.cli("ce", "list").stdout, what=f"{words} in the list")
        assert client.job(jobs[name]).job.state == "Waiting"

        def explains(name: str = name, words: str = words) -> bool:
            why = client.why(jobs[name])
            return why.reason == "ce" and f"CE {name} is paused" in why.detail and words in why.summary

        until(explains, what=f"the pause of {name} in why")
    tries = len(calls.read_text().splitlines())
    assert tries <= len(WRONG) * most_tries(time.monotonic() - begun)
    assert not [line for line in cluster.run("squeue", "-h", "-o", "%j").splitlines() if line], (
        "nothing stays"
    )


def test_a_machine_without_slurm_is_told_once(tmp_path: Path) -> None:
    made = Instance(tmp_path)
    made.policy = made.policy.partition("[ces.local]")[0] + SLURM_CE
    made.environment = {"PATH": str(tmp_path)}
    try:
        made.start()
        made.apply()
        client = made.client()
        client.submit({"executable": "true"})
        until(lambda: client.ce("slurm").ce.state == "unreachable", what="the state")
        ce = client.ce("slurm").ce
        assert "scontrol is not installed here" in ce.reason
        before = made.log().count("CE slurm:")
        assert before == 1
        row = client.pilots()
        assert not list(row)
    finally:
        made.close()


def test_a_ce_whose_pilots_no_node_can_start_is_closed(cluster: slurm.Cluster, tmp_path: Path) -> None:
    """Slurm tells it before any submission; `ce list` and `why` tell it to people."""
    made = Instance(tmp_path)
    closed = {name: section(name, *WRONG[name][:2]).replace(OPEN, "") for name in CLOSED}
    made.policy = made.policy.partition("[ces.local]")[0] + "".join(closed.values())
    made.environment = cluster.environment
    try:
        made.start()
        made.apply()
        client = made.client()
        jobs = {name: client.submit({"executable": "true", "grid_ces": [name]}).first for name in CLOSED}
        until(lambda: all(client.ce(name).ce.state == "closed" for name in CLOSED), what="the states")
        assert "its state is Closed" in client.ce("inactive").ce.reason
        for name, job in jobs.items():
            assert "its state is " in client.ce(name).ce.reason
            until(lambda job=job: client.why(job).reason == "ce", what="the reason")
            assert f"CE {name} is closed" in client.why(job).detail
        assert not list(client.pilots())
    finally:
        made.close()
