"""Jobs run in pilots that a double of PBS, Torque or LSF starts as real processes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.policy import parse
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.doubles import cluster as doubles
from tests.doubles.cluster import Double
from tests.doubles.jobs import locked
from tests.instance import Instance, held_job, started, until

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
QUEUES = {"pbs": "workq", "torque": "workq", "lsf": "normal"}


@pytest.fixture(scope="module", params=list(QUEUES))
def made(request: pytest.FixtureRequest) -> Iterator[Double]:
    with doubles.double(request.param) as double:
        yield double


@pytest.fixture(scope="module")
def instance(made: Double, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    server = Instance(tmp_path_factory.mktemp("server"))
    server.environment = made.environment
    server.policy = server.policy.replace("[jobs]", '[director]\ndemand = "matched"\n\n[jobs]')
    with started(server):
        yield server


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def ce(made: Double, instance: Instance, logs: Path) -> str:
    """The name of a CE of two cores that `ce add` has made."""
    words = ("--wall", "20m", "--processors", "2", "--memory", "200", "--log-folder", str(logs))
    added = instance.cli("ce", "add", made.system, "--name", "cell", *words)
    assert added.returncode == 0, added.stderr
    assert f"type {made.system} is experimental" in added.stderr
    client = instance.client()
    text = client.policy().text
    quick = "listing_period = 0.5\nsettle = 0.5\nidle = 2\nheartbeat = 0.5\nsubmit_rate = 100"
    for line in ("idle = 30", "heartbeat = 60", "submit_rate = 1"):
        text = text.replace(f"{line}\n", "")
    client.apply_policy(text.replace("listing_period = 60", quick))
    return "cell"


def nothing_left(made: Double) -> bool:
    with locked(made.state) as cluster:
        tasks = [task for job in cluster.jobs.values() for task in job["tasks"].values()]
    return all(task["state"] == "ended" for task in tasks)


def assert_nothing_left(instance: Instance, made: Double) -> None:
    until(lambda: nothing_left(made), what="the end of all batch jobs")
    until(lambda: all(pilot.ended for pilot in instance.client().pilots()), what="the end of all pilots")


def test_the_queues_are_proposed(made: Double, instance: Instance) -> None:
    tried = instance.cli("ce", "add", made.system, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert f'+queue = "{QUEUES[made.system]}"' in tried.stdout
    refused = instance.cli("ce", "add", made.system, "--wall", "100h")
    assert refused.returncode == 2
    assert "at most" in refused.stderr or "allows" in refused.stderr


def test_jobs_run_in_its_pilots(made: Double, instance: Instance, ce: str, logs: Path) -> None:
    client = instance.client()
    added = parse(client.policy().text).ces[ce]
    assert (added.type, added.wall) == (made.system, 1200.0)
    sent = client.submit({"executable": "true", "grid_ces": [ce]}, values=range(30))
    selection = Selection(submission=sent.submission)
    until(lambda: client.counts(selection).final == 30, what="the end of all jobs")
    assert client.counts(selection).states == {"Done": 30}
    assert_nothing_left(instance, made)
    pilots = [pilot for pilot in client.pilots() if pilot.ce == ce]
    assert pilots
    assert all(pilot.processors == 2 and pilot.batch_id for pilot in pilots)
    assert {path.name for path in logs.iterdir()} >= {
        f"{client.pilot(pilot.id).stamp.replace('/', '-')}.log" for pilot in pilots
    }
    assert "(experimental)" in instance.cli("ce", "show", ce).stdout


def test_a_pilot_that_is_cancelled_by_hand_hands_its_job_back(
    made: Double, instance: Instance, ce: str, tmp_path: Path
) -> None:
    client, gate = instance.client(), tmp_path / "gate"
    sent = client.submit({**held_job(gate), "grid_ces": [ce]})
    until(lambda: client.job(sent.first).job.state == "Running", what="a running job")
    pilot = instance.pilot_of(sent.first)
    made.run("bkill" if made.system == "lsf" else "qdel", pilot.batch_id)
    until(lambda: client.pilot(pilot.id).pilot.ended, what="the end of the pilot")
    gate.touch()
    until(lambda: client.job(sent.first).job.state == "Done", what="the end of the job")
    assert instance.events(sent.first).count("finished") == 1
    assert client.pilot(pilot.id).pilot.state == "Done", "it left by itself"
    assert_nothing_left(instance, made)


def test_a_batch_system_that_is_away_is_told_and_comes_back(
    made: Double, instance: Instance, ce: str
) -> None:
    client = instance.client()
    words = "LSF is down. Please wait ..." if made.system == "lsf" else "cannot connect to server pbs1"
    with made.faulty(errors=f"{words}\n", status=255):
        sent = client.submit({"executable": "true", "grid_ces": [ce]}, values=range(5))
        until(lambda: words in instance.cli("ce", "show", ce).stdout, what="the reason")
    selection = Selection(submission=sent.submission)
    instance.cli("ce", "enable", ce)
    until(lambda: client.counts(selection).states == {"Done": 5}, what="the end of all jobs")
    assert_nothing_left(instance, made)


def test_the_how_to_page_works_as_it_stands(
    made: Double, instance: Instance, ce: str, tmp_path: Path
) -> None:
    """The commands of the page, word for word. Torque has no page of its own."""
    page = HOW_TO / f"{made.system}.md"
    if not page.exists():
        pytest.skip("the page of PBS tells of Torque")
    lines = re.findall(r"^\$ (pilotage .*)$", page.read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        done = instance.cli(*shlex.split(line)[1:], cwd=str(tmp_path), timeout=4 * PATIENCE)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    assert (tmp_path / f"{made.system}.jsonl").stat().st_size > 1000
    text = instance.client().policy().text
    section = text[text.index(f"[ces.{made.system}]") :]
    assert f'queue = "{QUEUES[made.system]}"' in section
    assert 'project = "physics"' in section


def test_a_probe_tests_the_ce(instance: Instance, ce: str) -> None:
    tested = instance.cli("ce", "test", ce, "--json")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    steps = {step["name"]: step["state"] for step in json.loads(tested.stdout)["steps"]}
    assert steps["batch system"] == steps["submission"] == steps["start"] == steps["server"] == "ok"
