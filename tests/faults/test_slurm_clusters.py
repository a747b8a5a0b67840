"""One server with CEs on two real Slurm clusters: one has accounting, and one of the controllers dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pilotage.client import Client
from pilotage.core.policy import parse
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.wire.jobs import Selection
from tests import slurm
from tests.acceptance.test_slurm import MATCHED, SLURM_CE
from tests.deadlines import PATIENCE
from tests.instance import Instance, started, until


@pytest.fixture(scope="module")
def first() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=1, processors=8, MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def second() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=1, processors=8, name="second", accounting=True, MessageTimeout="2") as made:
        database = made.accounting
        assert database is not None
        for account in ("theory", "foreign"):
            database.change("add", "account", account, f"description={account}", "organization=tests")
        database.change("add", "user", "root", "account=theory", "partition=long")
        database.change("add", "qos", "night")
        yield made


@pytest.fixture(scope="module")
def instance(
    first: slurm.Cluster, second: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    """A server whose own SLURM_CONF is that of the first cluster."""
    made = Instance(tmp_path_factory.mktemp("server"))
    ce = SLURM_CE.replace("[ces.slurm]", "[ces.first]")
    made.policy = made.policy.partition("[ces.local]")[0] + ce + MATCHED
    made.environment = first.environment
    with started(made):
        yield made


def add_second(instance: Instance, second: slurm.Cluster) -> None:
    conf = second.environment["SLURM_CONF"]
    options = ("--name", "second", "--conf", conf, "--wall", "20m", "--owners", "any")
    added = instance.cli("ce", "add", "slurm", *options)
    assert added.returncode == 0, added.stderr
    client = instance.client()
    text = client.policy().text
    assert parse(text).ces["second"].options_as(SlurmOptions).conf == conf
    client.apply_policy(
        text.replace("listing_period = 60", "listing_period = 0.5")
        .replace("idle = 30", "idle = 2")
        .replace("heartbeat = 60", "heartbeat = 0.5")
    )


def finish(client: Client, ce: str, count: int = 5) -> None:
    sent = client.submit({"executable": "true", "grid_ces": [ce]}, values=range(count))
    selection = Selection(submission=sent.submission)
    until(lambda: client.counts(selection).final == count, what=f"the jobs of {ce}: {client.ces()}")
    assert client.counts(selection).states == {"Done": count}
    assert ce in {pilot.ce for pilot in client.pilots()}


def test_jobs_run_in_two_clusters_and_a_dead_controller_stops_its_own_ce_only(
    instance: Instance, first: slurm.Cluster, second: slurm.Cluster
) -> None:
    add_second(instance, second)
    client = instance.client()
    finish(client, "first")
    finish(client, "second")
    stamps = {ce: {p.id for p in client.pilots() if p.ce == ce} for ce in ("first", "second")}
    for ce, pilots in stamps.items():
        cluster = {"first": first, "second": second}[ce]
        names = cluster.run("scontrol", "show", "jobs")
        for pilot in pilots:
            stamp = client.pilot(pilot).stamp.rpartition("/")[0]
            assert stamp in names, f"pilot {pilot} is in the cluster of {ce}"
            assert stamp not in {"first": second, "second": first}[ce].run("scontrol", "show", "jobs")
    job = client.submit({"executable": "sleep", "arguments": ["3600"], "grid_ces": ["first"]}).first
    until(lambda: client.job(job).job.state == "Running", what="a running job of the first cluster")
    first.kill()
    try:
        until(lambda: client.ce("first").ce.state == "unreachable", what="the state of the first CE")
        finish(client, "second")
        assert client.ce("second").ce.state == "active"
        assert client.job(job).job.state == "Running", "its pilot goes on without the controller"
    finally:
        first.start_controller()
    until(lambda: client.ce("first").ce.state == "active", what="the answer of the first cluster")
    client.kill(Selection(ids=[job]))
    finish(client, "first")


def test_a_ce_that_is_moved_to_another_cluster_loses_none_of_its_pilots(
    instance: Instance, first: slurm.Cluster, second: slurm.Cluster
) -> None:
    client = instance.client()
    before = client.policy().text
    job = client.submit({"executable": "sleep", "arguments": ["3600"], "grid_ces": ["first"]}).first
    until(lambda: client.job(job).job.state == "Running", what="a running job")
    pilot = client.job(job).job.pilot
    assert pilot is not None
    moved = before.replace("settle = ", "# settle = ").replace(
        "idle = 2\n",
        f'idle = 2\nsettle = 1\n[ces.first.slurm]\nconf = "{second.environment["SLURM_CONF"]}"\n',
        1,
    )
    client.apply_policy(moved)
    until(lambda: client.ce("first").ce.state == "unreachable", what="the state")
    assert "pilots of the CE are in cluster test" in client.ce("first").ce.reason
    assert client.pilot(pilot).pilot.ended is None
    assert client.job(job).job.state == "Running"
    client.apply_policy(before)
    until(lambda: client.ce("first").ce.state == "active", 2 * PATIENCE, "the former cluster")
    assert client.pilot(pilot).pilot.ended is None
    client.kill(Selection(ids=[job]))


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--account", "foreign"), "may not charge account foreign", "theory (partition long), default"),
        (("--account", "theory", "--partition", "short"), "no partition short", "partitions: long"),
        (("--qos", "night"), "has no QOS night", "QOS: normal"),
        (("--conf", "slurm.conf"), "must be an absolute path", "/etc/slurm/slurm.conf"),
        (("--conf", "/nosuch/slurm.conf"), "sinfo", ""),
        (("--set", "nosuch=1"), "has no key 'nosuch'", "its keys: conf, partition"),
    ],
)
def test_only_the_accounts_of_the_user_are_accepted(
    instance: Instance, second: slurm.Cluster, words: tuple[str, ...], message: str, hint: str
) -> None:
    conf = () if "--conf" in words else ("--conf", second.environment["SLURM_CONF"])
    ended = instance.cli("ce", "add", "slurm", *conf, *words, "--dry-run")
    assert ended.returncode in (2, 6)
    assert message in ended.stderr
    assert hint in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_account_for_one_partition_chooses_it(instance: Instance, second: slurm.Cluster) -> None:
    conf = ("--conf", second.environment["SLURM_CONF"])
    shown = instance.cli("ce", "add", "slurm", *conf, "--account", "theory", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert '+partition = "long"' in shown.stdout
    assert '+account = "theory"' in shown.stdout
