"""`pilotage ce` on a real Slurm."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.core.errors import Forbidden, NotFound
from pilotage.core.policy import parse
from pilotage.wire.ces import CeReport
from pilotage.wire.jobs import Selection
from tests import slurm
from tests.instance import Instance, started, until

CLIENTS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8) as made:
        yield made


@pytest.fixture(scope="module")
def instance(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server on the machine of the cluster; first with the CE local only."""
    with server(tmp_path_factory.mktemp("server"), cluster.environment) as made:
        yield made


@contextmanager
def server(folder: Path, environment: dict[str, str]) -> Iterator[Instance]:
    made = Instance(folder)
    made.environment = environment
    made.policy = made.policy.replace(
        "[jobs]", '[director]\ndemand = "matched"\n\n# Jobs of all CEs.\n[jobs]'
    )
    with started(made):
        yield made


def test_a_cluster_is_added_and_runs_jobs(instance: Instance) -> None:
    client = instance.client()
    before = client.policy()
    tried = instance.cli("ce", "add", "slurm", "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "+[ces.slurm.slurm]" in tried.stdout
    assert '+partition = "short"' in tried.stdout
    assert client.policy().version == before.version
    added = instance.cli("ce", "add", "slurm", "--name", "cluster", "--wall", "20m", "--reason", "more cores")
    assert added.returncode == 0, added.stderr
    after = client.policy()
    assert (after.version, after.reason) == (before.version + 1, "more cores")
    ce = parse(after.text).ces["cluster"]
    assert (ce.type, ce.pilot_processors, ce.pilot_memory, ce.wall) == ("slurm", 4, 8000, 1200.0)
    assert "# Jobs of all CEs.\n[jobs]" in after.text
    client.apply_policy(after.text.replace("listing_period = 60", "listing_period = 0.5"))
    sent = client.submit({"executable": "true", "grid_ces": ["cluster"]}, values=range(3))
    until(lambda: client.counts(Selection(submission=sent.submission)).final == 3, what="the end of the jobs")
    assert client.counts(Selection(submission=sent.submission)).states == {"Done": 3}
    assert {pilot.ce for pilot in client.pilots()} == {"cluster"}


def test_the_batch_jobs_of_a_ce_are_listed_with_their_properties(instance: Instance) -> None:
    client = instance.client()
    ces = [name for name in ("cluster", "local") if name in {ce.name for ce in client.ces()}]
    assert ces
    for ce in ces:
        sent = client.submit({"executable": "sleep", "arguments": ["3600"], "grid_ces": [ce]})
        until(lambda sent=sent: client.job(sent.first).job.state == "Running", what="a running job")
        pilot = instance.pilot_of(sent.first)
        [job] = [job for job in client.ce_jobs(ce) if job.pilot == pilot.id]
        assert (job.state, job.batch_id) == ("running", pilot.batch_id)
        assert job.owner == client.job(sent.first).job.owner
        assert job.properties["cores"] == str(pilot.processors)
        if ce == "cluster":
            assert (job.group, job.node, job.properties["wall"]) == ("home", "n1", "1200")
            assert job.queue == str(client.job(sent.first).job.queue)
        listed = instance.cli("ce", "jobs", ce)
        assert listed.returncode == 0, listed.stderr
        head, *rows = (line.split("\t") for line in listed.stdout.splitlines())
        assert head[:5] == ["batch_job", "pilot", "state", "age", "owner"]
        assert [pilot.batch_id, str(pilot.id), "running"] in [row[:3] for row in rows]
        client.kill(Selection(ids=[sent.first]))
    with pytest.raises(Forbidden):
        instance.client("alice").ce_jobs("local")
    with pytest.raises(NotFound, match="no CE lcoal"):
        client.ce_jobs("lcoal")


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (("--partition", "lnog"), 2, "no partition lnog", "partitions: short, long"),
        (("--name", "local"), 5, "a CE local already", "--name"),
        (("--site", "there"), 2, "no site there", "sites: here"),
        (("--wall", "31m"), 2, "allows 1800 s", "--wall"),
        (("--processors", "9"), 2, "has 9 cores", "8"),
        (("--constraint", "nosuch"), 2, "refuse these pilots: Invalid feature", "nothing has been changed"),
        (("--owners", "ada"), 2, "owners", ""),
    ],
)
def test_a_wrong_answer_changes_nothing(
    instance: Instance, words: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    before = instance.client().policy().text
    ended = instance.cli("ce", "add", "slurm", *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert message in ended.stderr
    assert hint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert instance.client().policy().text == before


def test_a_controller_that_does_not_answer(cluster: slurm.Cluster, instance: Instance) -> None:
    cluster.kill()
    try:
        ended = instance.cli("ce", "add", "slurm")
    finally:
        cluster.start_controller()
    assert ended.returncode == 6
    assert "Unable to contact slurm controller" in ended.stderr
    assert "scontrol ping" in ended.stderr


def test_a_machine_without_slurm(tmp_path: Path) -> None:
    with server(tmp_path, {"PATH": str(tmp_path)}) as instance:
        ended = instance.cli("ce", "add", "slurm")
        assert ended.returncode == 6
        assert "sinfo is not installed here" in ended.stderr
        assert "install Slurm's client commands" in ended.stderr
        assert instance.cli("ce", "add", "nqs").returncode == 2
        assert "--partition" in instance.cli("ce", "add", "local", "--partition", "x").stderr
        added = instance.cli("ce", "add", "local", "--name", "more", "--processors", "1", "--json")
        assert added.returncode == 0, added.stderr
        assert json.loads(added.stdout)["name"] == "more"
        assert parse(instance.client().policy().text).ces["more"].processors == 1


def test_only_administrators_ask_the_batch_system(cluster: slurm.Cluster, instance: Instance) -> None:
    client = instance.client("alice")
    with pytest.raises(Forbidden):
        client.describe_batch_system("slurm")
    with pytest.raises(Forbidden):
        client.check_ce(instance.policy, "local")


def report(instance: Instance, name: str) -> CeReport:
    return instance.client().ce(name)


def test_pilots_that_fail_alike_stop_the_ce_and_their_output_says_why(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    programs, logs = tmp_path / "bin", tmp_path / "logs"
    programs.mkdir()
    logs.mkdir()
    for name in (*CLIENTS, "mktemp", "rm", "hostname", "true"):
        (programs / name).symlink_to(str(shutil.which(name, path=cluster.environment["PATH"])))
    # Pilots get this PATH too, and there is no Python on it.
    with server(tmp_path, {**cluster.environment, "PATH": str(programs)}) as instance:
        client = instance.client()
        options = ("--name", "broken", "--log-folder", str(logs), "--owners", "any")
        added = instance.cli("ce", "add", "slurm", *options)
        assert added.returncode == 0, added.stderr
        text = client.policy().text
        text = text.replace("listing_period = 60", "listing_period = 0.5\nsettle = 0.5\nmax_failures = 2", 1)
        client.apply_policy(text)
        sent = client.submit({"executable": "true", "grid_ces": ["broken"]}, values=range(2))
        until(lambda: report(instance, "broken").ce.state == "stopped", what="the stop")
        stopped = report(instance, "broken")
        assert "its batch job has ended without a word: FAILED, NonZeroExitCode" in stopped.ce.reason
        assert "ce enable broken" in stopped.ce.advice
        assert stopped.ce.listed is not None
        assert {failure.blame for failure in stopped.failures} == {"site"}
        assert all("no Python 3.9 or newer" in failure.log for failure in stopped.failures)
        shown = instance.cli("ce", "show", "broken")
        assert shown.returncode == 0, shown.stderr
        assert "no Python 3.9 or newer" in shown.stdout
        assert "stopped" in instance.cli("ce", "list").stdout
        assert {failure.log for failure in instance.client("alice").ce("broken").failures} == {""}
        # A restart does not submit again; an administrator does.
        instance.stop_server()
        instance.start()
        assert report(instance, "broken").ce.state == "stopped"
        (programs / "python3").symlink_to(sys.executable)
        enabled = instance.cli("ce", "enable", "broken", "--reason", "Python is there")
        assert (enabled.returncode, enabled.stdout) == (0, "CE broken is enabled\n")
        selection = Selection(submission=sent.submission)
        until(lambda: client.counts(selection).final == 2, what="the end of the jobs")
        assert client.counts(selection).states == {"Done": 2}


def test_an_administrator_disables_a_ce(instance: Instance) -> None:
    assert instance.cli("ce", "disable", "local").returncode == 2
    disabled = instance.cli("ce", "disable", "local", "--reason", "maintenance")
    assert disabled.returncode == 0, disabled.stderr
    client = instance.client()
    sent = client.submit({"executable": "true", "grid_ces": ["local"]})
    [row] = [line for line in instance.cli("ce", "list").stdout.splitlines() if line.startswith("local")]
    assert "disabled" in row
    assert "maintenance" in row

    def is_empty() -> bool:
        """Whether the pilots of earlier jobs have left."""
        ce = report(instance, "local").ce
        return ce.running == ce.waiting == 0

    until(is_empty, what="the end of idle pilots")
    with pytest.raises(Forbidden):
        instance.client("alice").enable_ce("local")
    with pytest.raises(NotFound, match="no CE lcoal"):
        client.enable_ce("lcoal")
    assert client.job(sent.first).job.state == "Waiting"
    client.enable_ce("local")
    until(lambda: client.job(sent.first).job.state == "Done", what="the job")
