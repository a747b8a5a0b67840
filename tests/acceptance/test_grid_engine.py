"""Jobs run in pilots that a real Grid Engine starts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.core.policy import parse
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.wire.jobs import Selection
from tests import sge
from tests.instance import Instance, held_job, started, until

QUEUES = {"all.q": {}, "long.q": {"h_rt": "48:00:00"}}


@pytest.fixture(scope="module")
def engine() -> Iterator[sge.GridEngine]:
    with sge.grid_engine(QUEUES) as made:
        yield made


@contextmanager
def server(folder: Path, environment: dict[str, str]) -> Iterator[Instance]:
    """A server that has the CE local only."""
    made = Instance(folder)
    made.environment = environment
    made.policy = made.policy.replace("[jobs]", '[director]\ndemand = "matched"\n\n[jobs]')
    with started(made):
        yield made


@pytest.fixture(scope="module")
def instance(engine: sge.GridEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with server(tmp_path_factory.mktemp("server"), engine.environment) as made:
        yield made


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def ce(instance: Instance, logs: Path) -> str:
    """The name of a CE of two cores that `ce add` has made."""
    words = ("--wall", "20m", "--processors", "2", "--memory", "200", "--log-folder", str(logs))
    added = instance.cli("ce", "add", "sge", "--name", "cell", "--set", f"pe={sge.PE}", *words)
    assert added.returncode == 0, added.stderr
    client = instance.client()
    text = client.policy().text
    quick = "listing_period = 0.5\nsettle = 0.5\nidle = 2\nheartbeat = 0.5\nsubmit_rate = 100"
    for line in ("idle = 30", "heartbeat = 60", "submit_rate = 1"):
        text = text.replace(f"{line}\n", "")
    client.apply_policy(text.replace("listing_period = 60", quick))
    return "cell"


def assert_nothing_left(instance: Instance, engine: sge.GridEngine) -> None:
    until(lambda: not engine.run("qstat", "-u", "*"), what="the end of all batch jobs")
    client = instance.client()
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")


def test_a_cell_is_described_by_its_queues(instance: Instance) -> None:
    described = instance.client().describe_batch_system("sge")
    queues = {partition.name: partition for partition in described.partitions}
    assert set(queues) == {"all.q", "long.q"}
    assert (queues["all.q"].default, queues["all.q"].wall, queues["long.q"].wall) == (True, 1800.0, 172800.0)
    tried = instance.cli("ce", "add", "sge", "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert '+queue = "all.q"' in tried.stdout
    assert "+pilot_processors = 1" in tried.stdout, "there is no parallel environment"


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (("--partition", "nosuch.q"), 2, "no partition nosuch.q", "all.q, long.q"),
        (("--processors", "2"), 2, "need a parallel environment", "pe"),
        (
            ("--set", "pe=nosuch", "--processors", "2"),
            2,
            '"nosuch" does not exist',
            "nothing has been changed",
        ),
        (("--set", "project=nosuch"), 2, 'project "nosuch" does not exist', "nothing has been changed"),
        (("--set", "resources=nosuch=1"), 2, "unknown resource", "nothing has been changed"),
        (("--set", "resources=arch=nosuch"), 2, "arch=lx-amd64", "nothing has been changed"),
        (("--wall", "31m"), 2, "allows 1800 s", "--wall"),
        (("--qos", "fast"), 2, "no --qos", "queue"),
        (("--set", "qmaster_port=port"), 2, "qmaster_port", ""),
        (("--set", "resourses=x=1"), 2, "has no key 'resourses'", "did you mean resources?"),
        (("--set", "resources"), 2, "must be KEY=VALUE", "keys of [ces.NAME.sge]"),
        (("--set", "max_waiting=3"), 2, "has no key 'max_waiting'", "use --max-waiting"),
        (("--set", "queue=a.q", "--partition", "all.q"), 2, "queue has two values", "give one of them"),
        (("--name", "a b"), 2, "'a b' would need quotes", "letters, digits"),
        (("--name", ""), 2, "is empty", "omit it"),
        (("--name", "-x"), 2, "would need quotes", "letters, digits"),
    ],
)
def test_a_wrong_answer_changes_nothing(
    instance: Instance, words: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    before = instance.client().policy().version
    refused = instance.cli("ce", "add", "sge", "--name", "wrong", *words)
    assert refused.returncode == code
    assert message in refused.stderr
    assert hint in refused.stderr
    assert instance.client().policy().version == before


def test_jobs_run_in_pilots_of_grid_engine(
    engine: sge.GridEngine, instance: Instance, ce: str, logs: Path
) -> None:
    client = instance.client()
    added = parse(client.policy().text).ces[ce]
    assert (added.type, added.options_as(SgeOptions).queue, added.wall) == ("sge", "all.q", 1200.0)
    sent = client.submit({"executable": "true", "grid_ces": [ce]}, values=range(30))
    selection = Selection(submission=sent.submission)
    until(lambda: client.counts(selection).final == 30, what="the end of all jobs")
    assert client.counts(selection).states == {"Done": 30}
    assert_nothing_left(instance, engine)
    pilots = [pilot for pilot in client.pilots() if pilot.ce == ce]
    assert pilots
    assert all(pilot.processors == 2 for pilot in pilots)
    assert {path.name for path in logs.iterdir()} >= {
        f"{client.pilot(pilot.id).stamp.replace('/', '-')}.log" for pilot in pilots
    }
    with sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True) as connection:
        [[said]] = connection.execute(
            "SELECT count(*) FROM pilots WHERE batch_id LIKE '%.%' AND ce = ?", [ce]
        )
    assert said == len(pilots)


def test_the_batch_jobs_of_a_ce_are_listed_with_their_properties(instance: Instance, ce: str) -> None:
    client = instance.client()
    sent = client.submit({"executable": "sleep", "arguments": ["3600"], "grid_ces": [ce]})
    until(lambda: client.job(sent.first).job.state == "Running", what="a running job")
    pilot = instance.pilot_of(sent.first)
    [job] = [job for job in client.ce_jobs(ce) if job.pilot == pilot.id]
    assert (job.state, job.batch_id) == ("running", pilot.batch_id)
    assert job.owner == client.job(sent.first).job.owner
    assert (job.group, job.properties["cores"], job.properties["wall"]) == ("home", "2", "1200")
    assert job.queue == str(client.job(sent.first).job.queue)
    client.kill(Selection(ids=[sent.first]))


def test_a_pilot_is_cancelled_by_hand_and_its_job_runs_again(
    engine: sge.GridEngine, instance: Instance, ce: str, tmp_path: Path
) -> None:
    """Grid Engine warns a pilot with SIGUSR2, and the pilot hands its job back before it leaves."""
    client, gate = instance.client(), tmp_path / "gate"
    sent = client.submit({**held_job(gate), "grid_ces": [ce]})
    until(lambda: client.job(sent.first).job.state == "Running", what="a running job")
    pilot = instance.pilot_of(sent.first)
    engine.run("qdel", pilot.batch_id)
    until(lambda: client.pilot(pilot.id).pilot.ended, what="the end of the pilot")
    gate.touch()
    until(lambda: client.job(sent.first).job.state == "Done", what="the end of the job")
    assert instance.events(sent.first).count("finished") == 1
    assert client.pilot(pilot.id).pilot.state == "Done", "it left by itself"
    assert_nothing_left(instance, engine)


def test_a_probe_tests_the_ce(instance: Instance, ce: str) -> None:
    tested = instance.cli("ce", "test", ce, "--json")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    steps = {step["name"]: step["state"] for step in json.loads(tested.stdout)["steps"]}
    assert steps["batch system"] == steps["submission"] == steps["start"] == steps["server"] == "ok"
