"""Pilots are shown, read and ended by an administrator, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import Forbidden, InvalidInput, NotFound
from pilotage.wire.pool import PilotSummary
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("kill"), owners="any", processors=1) as made:
        yield made


def start_job(instance: Instance, *script: str) -> tuple[int, int]:
    """A running job and its pilot."""
    client = instance.client()
    job = client.submit({"executable": "sh", "arguments": ["-c", *script]}).first
    instance.reaches(job, "Running")
    pilot = client.job(job).job.pilot
    assert pilot is not None
    return job, pilot


def ended(instance: Instance, pilot: int) -> PilotSummary:
    client = instance.client()
    until(lambda: client.pilot(pilot).pilot.ended, what=f"the end of pilot {pilot}")
    return client.pilot(pilot).pilot


@pytest.mark.parametrize("options", [(), ("--now",)])
def test_a_killed_pilot_gives_its_job_back(
    instance: Instance, options: tuple[str, ...], tmp_path: Path
) -> None:
    once = tmp_path / "once"
    job, pilot = start_job(instance, f"test -e {once} && exit 0; touch {once}; sleep 600")
    until(once.exists, what="the first attempt")
    done = instance.cli("pilot", "kill", str(pilot), "--reason", "broken disk", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 of 1 pilot ")
    row = ended(instance, pilot)
    assert row.state == "Deleted"
    assert row.reason.endswith(": broken disk")
    assert row.reason.startswith("killed by ")
    assert instance.reaches(job, "Done").failures == 0
    kinds = instance.events(job)
    assert "released" in kinds
    assert "lease-over" not in kinds


def test_a_drained_pilot_ends_after_its_job(instance: Instance, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    job, pilot = start_job(instance, f"until test -e {flag}; do sleep 0.1; done")
    client = instance.client()
    assert client.kill_pilots([pilot], order="drain").done == 1
    assert client.pilot(pilot).order == "drain"
    flag.touch()
    assert instance.reaches(job, "Done").pilot == pilot
    assert ended(instance, pilot).state == "Done"
    assert instance.events(job).count("confirmed") == 1


def test_all_pilots_of_a_ce(instance: Instance) -> None:
    job, pilot = start_job(instance, "sleep 600")
    assert instance.cli("pilot", "kill", "--ce", "local").returncode == 2, "it asks first"
    dry = instance.client().kill_pilots(ce="local", dry_run=True)
    assert dry.done >= 1
    instance.client().kill([job])
    done = instance.cli("pilot", "kill", "--ce", "local", "-y", "--json")
    assert json.loads(done.stdout)["done"] >= 1
    assert ended(instance, pilot).state == "Deleted"


def test_the_output_of_a_pilot(instance: Instance) -> None:
    job, pilot = start_job(instance, "sleep 600")

    def shown() -> str:
        """The output, once the pilot has written of its job: it confirms the job first."""
        return text if f"job={job} " in (text := instance.cli("pilot", "logs", str(pilot)).stdout) else ""

    assert "pilot leaves" not in until(shown, what="the line of the job")
    client = instance.client()
    pieces = client.pilot_logs(pilot, follow=True)
    next(pieces)
    client.kill([job])
    client.kill_pilots([pilot])
    assert "pilot leaves" in b"".join(piece.data for piece in pieces).decode()
    facts = instance.cli("pilot", "show", str(pilot)).stdout
    assert f"pilot\t{pilot}\n" in facts
    assert "reason\tkilled by" in facts


def test_only_administrators_end_pilots_or_read_their_output(instance: Instance) -> None:
    job, pilot = start_job(instance, "sleep 600")
    bob = instance.client("bob")
    for ask in (
        lambda: bob.kill_pilots([pilot]),
        lambda: bob.kill_pilots(ce="local"),
        lambda: bob.pilot_log(pilot),
    ):
        with pytest.raises(Forbidden):
            ask()
    assert bob.pilot(pilot).job_ids == []
    assert (bob.pilot(pilot).pilot.owner, bob.pilot(pilot).pilot.efficiency) == ("", None)
    assert bob.pilot(pilot).pilot.pilot_type == "generic"
    assert instance.client().pilot(pilot).job_ids == [job]
    instance.client().kill([job])


def test_kill_pilots_refuses_each_unknown_pilot(instance: Instance) -> None:
    client = instance.client()
    job, pilot = start_job(instance, "sleep 600")
    answer = client.kill_pilots([pilot, 999_999])
    assert (answer.matched, answer.done) == (2, 1)
    assert [(refusal.pilot, refusal.message) for refusal in answer.refused] == [
        (999_999, "there is no such pilot")
    ]
    client.kill([job])
    ended(instance, pilot)
    refused = instance.cli("pilot", "kill", str(pilot))
    assert refused.returncode != 0
    assert f"pilot {pilot}: the pilot is already Deleted" in refused.stderr
    with pytest.raises(NotFound):
        client.pilot(999_999)
    with pytest.raises(NotFound, match="nowhere"):
        client.kill_pilots(ce="nowhere")
    with pytest.raises(InvalidInput, match="order"):
        client.kill_pilots([pilot], order="shoot")
    for words in (["1", "--ce", "local"], [], ["1", "--drain", "--now"], ["x"]):
        assert instance.cli("pilot", "kill", *words).returncode == 2, words
