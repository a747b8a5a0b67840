"""`pilotage ce test`: one probe tells step by step what works, on a real Slurm and on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import Forbidden, NotFound
from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.instance import Instance, until

NODE_STEPS = ["Python", "server", "scratch", "cores", "memory", "time left", "offer", "clock"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8) as made:
        yield made


@pytest.fixture(scope="module")
def instance(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance_on(
        cluster, tmp_path_factory.mktemp("server"), settle="2", pilot_processors="1", max_failures="3"
    ) as made:
        yield made


def test_a_probe_of_slurm_tells_all_steps(instance: Instance, cluster: slurm.Cluster) -> None:
    tried = instance.cli("ce", "test", "slurm")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    lines = [line for line in tried.stdout.splitlines() if line.startswith(("ok ", "warning "))]
    assert [line[9:22].strip() for line in lines] == ["batch system", "submission", "start", *NODE_STEPS]
    assert "CE slurm works" in tried.stdout
    assert all(line.startswith("ok ") for line in lines if line[9:22].strip() != "scratch")
    client = instance.client()
    [pilot] = [row for row in client.pilots() if row.ce == "slurm"]
    assert (pilot.state, pilot.reason, pilot.finished) == ("Done", "probe", 0)
    until(lambda: not cluster.run("squeue", "-h"), what="the end of the probe's batch job")
    again = instance.cli("ce", "test", "slurm", "--json")
    assert again.returncode == 0, again.stderr
    probe = json.loads(again.stdout)
    assert (probe["number"], probe["ended"]) == (2, True)
    assert {step["state"] for step in probe["steps"]} <= {"ok", "warning"}


def test_a_disabled_ce_can_be_tested(instance: Instance) -> None:
    client = instance.client()
    client.disable_ce("slurm", "until it is tested")
    try:
        assert instance.cli("ce", "test", "slurm").returncode == 0
    finally:
        client.enable_ce("slurm")


def test_this_machine_can_be_tested(tmp_path: Path) -> None:
    made = Instance(tmp_path)
    try:
        made.start()
        made.apply()
        tried = made.cli("ce", "test", "local", "--json")
        assert tried.returncode == 0, tried.stdout + tried.stderr
        steps = {step["name"]: step for step in json.loads(tried.stdout)["steps"]}
        assert steps["batch system"]["text"] == "this machine"
        assert set(NODE_STEPS) <= set(steps)
    finally:
        made.close()


def test_a_probe_that_waits_says_why(instance: Instance, cluster: slurm.Cluster) -> None:
    client = instance.client()
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    try:
        client.probe_ce("slurm")
        until(
            lambda: any("PartitionDown" in step.text for step in client.ce_probe("slurm").steps),
            what="the reason of the wait",
        )
        tried = instance.cli("ce", "test", "slurm", "--timeout", "1s")
        assert tried.returncode == 1
        assert "waits: start" in tried.stderr
        assert "PartitionDown" in tried.stderr
        assert "follow it with `pilotage ce test slurm`" in tried.stderr
    finally:
        cluster.run("scontrol", "update", "partitionname=short", "state=up")
    followed = instance.cli("ce", "test", "slurm", "--json")
    assert followed.returncode == 0, followed.stderr
    number = json.loads(followed.stdout)["number"]
    assert instance.client().ce_probe("slurm").number == number


def test_a_wrong_partition_is_the_submissions_fault(cluster: slurm.Cluster, tmp_path: Path) -> None:
    with instance_on(cluster, tmp_path / "server") as made:
        made.policy = made.policy.replace("[jobs]", '[ces.slurm.slurm]\npartition = "nowhere"\n[jobs]')
        made.apply()
        tried = made.cli("ce", "test", "slurm")
        assert tried.returncode == 1
        assert "failed   submission" in tried.stdout
        assert "invalid partition" in tried.stdout.lower()
        assert "a fault of: policy" in tried.stderr


def test_a_node_without_python_is_the_sites_fault(cluster: slurm.Cluster, tmp_path: Path) -> None:
    programs, logs = tmp_path / "programs", tmp_path / "logs"
    programs.mkdir()
    logs.mkdir()
    for name in ("python3", *(f"python3.{minor}" for minor in range(9, 15))):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    environment = {**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"}
    with instance_on(cluster, tmp_path / "server", environment=environment, settle="2") as made:
        made.policy = made.policy.replace("[jobs]", f'[ces.slurm.slurm]\nlog_folder = "{logs}"\n[jobs]')
        made.apply()
        tried = made.cli("ce", "test", "slurm")
        assert tried.returncode == 1, tried.stdout + tried.stderr
        assert "failed   Python" in tried.stdout
        assert "no Python 3.9 or newer" in tried.stdout
        assert "a fault of: site" in tried.stderr


def test_a_batch_system_that_does_not_answer(cluster: slurm.Cluster, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Connection refused' >&2\nexit 1\n"
    )
    (programs / "squeue").chmod(0o755)
    environment = {**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"}
    with instance_on(cluster, tmp_path / "server", environment=environment) as made:
        tried = made.cli("ce", "test", "slurm")
        assert tried.returncode == 1
        assert "failed   batch system" in tried.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nowhere",), 4, "the policy has no CE nowhere"),
        (("slurm", "--timeout", "soon"), 2, "soon"),
        ((), 2, "NAME"),
    ],
)
def test_wrong_words(instance: Instance, words: tuple[str, ...], code: int, message: str) -> None:
    tried = instance.cli("ce", "test", *words)
    assert tried.returncode == code, tried.stderr
    assert message in tried.stderr


def test_the_cost_of_probes_is_told_and_an_unknown_ce_is_not(instance: Instance) -> None:
    client = instance.client()
    assert instance.cli("ce", "test", "slurm").returncode == 0
    until(lambda: [row.name for row in client.costs(ce="slurm").rows] == ["slurm"], what="the probe's cost")
    with pytest.raises(NotFound, match="no CE nowhere"):
        instance.client().costs(ce="nowhere")


def test_only_administrators_test_a_ce(instance: Instance) -> None:
    user = instance.client("alice")
    with pytest.raises(Forbidden):
        user.probe_ce("slurm")
    with pytest.raises(Forbidden):
        user.ce_probe("slurm")


def test_a_probe_survives_the_death_of_the_server(instance: Instance, cluster: slurm.Cluster) -> None:
    client = instance.client()
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    try:
        number = client.probe_ce("slurm").number
        until(lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T"), what="a waiting probe")
        instance.kill_server()
        instance.start()
    finally:
        cluster.run("scontrol", "update", "partitionname=short", "state=up")
    until(lambda: instance.client().ce_probe("slurm").ended, what="the end of the probe")
    probe = instance.client().ce_probe("slurm")
    assert probe.number == number
    assert {step.state for step in probe.steps} <= {"ok", "warning"}
