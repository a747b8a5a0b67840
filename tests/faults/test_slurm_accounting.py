"""A real Slurm with slurmdbd: wrong accounts and QOS, limits of accounting, and ends that only `sacct` knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.acceptance.test_slurm import MATCHED, SLURM_CE
from tests.deadlines import PATIENCE
from tests.faults.slurm_shape import most_tries
from tests.instance import Instance, held_job, started, until

WRONG = {
    "account": ('account = "nosuch"', "Invalid account or account/partition combination specified"),
    "qos": ('qos = "nosuch"', "Invalid qos specification"),
    "foreign": ('qos = "foreign"', "Invalid qos specification"),
    "denied": ('qos = "denied"', "QOSMaxMemoryPerUser"),
}
"""By CE: the wrong key of [ces.NAME.slurm], and words of Slurm's refusal."""
LIMITED = {
    "assoc": ('account = "limited"', "AssocMaxSubmitJobLimit", 2),
    "user": ('qos = "few"', "QOSMaxSubmitJobPerUserLimit", 2),
}
"""By CE: the key, the name of the limit, and the number of jobs that it allows."""
SETTLE = 3 * PATIENCE
"""Seconds after which the CE `ends` would give up a pilot that no listing has."""
COUNTER = """\
#!/bin/sh
echo "$*" >> {calls}
exec {real} "$@"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=16, accounting=True, MinJobAge="2", KillWait="5") as made:
        database = made.accounting
        assert database is not None
        database.change("add", "account", "limited", "description=limited", "organization=tests")
        database.change("add", "user", "root", "account=limited", "maxsubmitjobs=2")
        for name in ("foreign", "denied", "few", "single"):
            database.change("add", "qos", name)
        database.change("modify", "qos", "denied", "set", "flags=DenyOnLimit", "maxtresperuser=mem=100")
        database.change("modify", "qos", "few", "set", "maxsubmitjobsperuser=2")
        database.change("modify", "qos", "single", "set", "maxjobsperuser=1")
        database.change("modify", "user", "root", "set", "qos+=denied,few,single")
        yield made


def section(name: str, key: str, **replaced: str) -> str:
    lines = [
        line
        for line in SLURM_CE.replace("[ces.slurm]", f"[ces.{name}]").splitlines()
        if line.partition(" =")[0] not in replaced
    ]
    lines += [f"{option} = {value}" for option, value in replaced.items()]
    return "\n".join([*lines, f"[ces.{name}.slurm]", key, ""])


@pytest.fixture(scope="module")
def instance(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with a CE for each case; the calls of sbatch are counted."""
    folder = tmp_path_factory.mktemp("server")
    programs = folder / "programs"
    programs.mkdir()
    real = cluster.run("sh", "-c", "command -v sbatch").strip()
    (programs / "sbatch").write_text(COUNTER.format(calls=folder / "calls", real=real))
    (programs / "sbatch").chmod(0o755)
    made = Instance(folder)
    sections = [section(name, key) for name, (key, _) in WRONG.items()]
    sections += [section(name, key, idle="60") for name, (key, _, _) in LIMITED.items()]
    sections.append(section("single", 'qos = "single"', idle="60"))
    sections.append(section("ends", 'account = "default"', idle="60", settle=f"{SETTLE:g}", heartbeat="1"))
    made.policy = made.policy.partition("[ces.local]")[0] + "".join(sections) + MATCHED
    made.environment = {**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"}
    with started(made):
        yield made


def test_wrong_accounts_and_qos_are_told_and_pause_their_ce(instance: Instance) -> None:
    client, begun = instance.client(), time.monotonic()
    for name in WRONG:
        client.submit({"executable": "true", "grid_ces": [name]})
    until(lambda: all(client.ce(name).ce.alike >= 2 for name in WRONG), what=f"refusals: {client.ces()}")
    for name, (_, words) in WRONG.items():
        ce = client.ce(name).ce
        assert (ce.state, words in ce.reason) == ("paused", True), ce
        told = [line for line in instance.log().splitlines() if f"CE {name}:" in line]
        assert len(told) == 1, told
        assert words in told[0]
    calls = (instance.home.parent / "calls").read_text().splitlines()
    for name, (key, _) in WRONG.items():
        option = key.replace(" = ", "=").replace('"', "")
        tried = sum(f"--{option}" in call for call in calls)
        assert 2 <= tried <= most_tries(time.monotonic() - begun), name


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_on_submitted_jobs_means_full(instance: Instance, tmp_path: Path, name: str) -> None:
    _, limit, most = LIMITED[name]
    client, gate = instance.client(), tmp_path / "gate"
    sent = client.submit({**held_job(gate), "grid_ces": [name]}, values=range(12))
    selection = Selection(submission=sent.submission)
    until(lambda: client.ce(name).ce.state == "full", what=f"its state: {client.ce(name).ce}")
    ce = client.ce(name).ce
    assert limit in ce.reason
    assert ce.waiting + ce.running == most, "as many pilots as the limit allows"
    assert client.ce(name).failures == [], "nobody is to blame"
    assert (ce.alike, ce.failure) == (0, "")
    gate.touch()
    until(lambda: client.counts(selection).final == 12, what="the end of all jobs")
    assert client.counts(selection).states == {"Done": 12}


def test_pilots_that_wait_for_a_limit_on_running_jobs_are_no_failures(
    instance: Instance, tmp_path: Path
) -> None:
    client, gate = instance.client(), tmp_path / "gate"
    sent = client.submit({**held_job(gate), "grid_ces": ["single"]}, values=range(6))
    until(lambda: client.ce("single").ce.waits, what="a reason to wait")
    ce = client.ce("single").ce
    assert [wait.reason for wait in ce.waits] == ["PENDING: QOSMaxJobsPerUserLimit"]
    assert (ce.state, ce.alike) == ("active", 0)
    gate.touch()
    until(lambda: client.counts(Selection(submission=sent.submission)).final == 6, what="the end of all jobs")


def batch_id_of(instance: Instance, ce: str, job: int) -> tuple[int, str]:
    """The pilot that runs a job of a CE, and its batch job."""

    def running() -> tuple[int, str] | None:
        pilot = instance.client().job(job).job.pilot
        batch_id = instance.client().pilot(pilot).pilot.batch_id if pilot else ""
        return (pilot, batch_id) if pilot and batch_id else None

    return until(running, what=f"a running pilot of {ce}: {instance.client().ce(ce)}")


def test_the_accounting_tells_an_end_that_listings_do_not_have(
    instance: Instance, cluster: slurm.Cluster
) -> None:
    client = instance.client()
    job = client.submit({"executable": "sleep", "arguments": ["600"], "grid_ces": ["ends"]}).first
    pilot, batch_id = batch_id_of(instance, "ends", job)
    assert instance.process is not None
    # While the server is away, the controller forgets the batch job.
    instance.kill_server()
    cluster.run("scancel", "--signal=KILL", "--full", batch_id)
    until(
        lambda: batch_id not in cluster.run("squeue", "-h", "-r", "-t", "all", "-o", "%F_%K"), what="oblivion"
    )
    instance.start()
    until(lambda: client.pilot(pilot).pilot.ended, what="its end, long before the settle time")
    reason = client.pilot(pilot).pilot.reason
    assert reason.endswith("CANCELLED, by root")
    report = client.ce("ends")
    [failure] = (failure for failure in report.failures if failure.pilot == pilot)
    assert (failure.reason, failure.blame) == (reason, "site")
    client.kill(Selection(ids=[job]))
