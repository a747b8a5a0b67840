"""The end of a pilot in a real Slurm: signals, a node that crashes, a controller that forgets ended jobs at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.pool import PilotSummary
from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.deadlines import PATIENCE
from tests.faults.slurm_shape import SLURM, assert_all_done, processes_of
from tests.instance import Instance, alive, until

PAYLOAD = """\
echo begins
trap 'echo caught >> {marks}/caught; echo ends; exit 9' TERM
if [ -e {marks}/first ]; then exit 0; fi
echo $$ > {marks}/started
mv {marks}/started {marks}/first
while :; do sleep 0.1; done
"""
"""Runs until a signal ends it; its second attempt ends at once."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=1, processors=8, MinJobAge="2", KillWait="20", MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def instance(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance_on(cluster, tmp_path_factory.mktemp("life"), settle="2", listing_period="1") as made:
        yield made


def running_pilot(instance: Instance, job: int) -> PilotSummary:
    instance.reaches(job, "Running")
    client = instance.client()
    pilot = client.job(job).job.pilot
    assert pilot is not None
    return client.pilot(pilot).pilot


def start(instance: Instance, marks: Path, payload: str = PAYLOAD) -> tuple[int, PilotSummary]:
    job = (
        instance.client().submit({"executable": "sh", "arguments": ["-c", payload.format(marks=marks)]}).first
    )
    pilot = running_pilot(instance, job)
    until((marks / "first").exists, what="the first attempt")
    return job, pilot


def ended(instance: Instance, pilot: int) -> PilotSummary:
    client = instance.client()
    until(lambda: client.pilot(pilot).pilot.ended, what=f"the end of pilot {pilot}")
    return client.pilot(pilot).pilot


@pytest.mark.parametrize(
    ("options", "name"),
    [((), "SIGTERM"), (("--signal=TERM", "--full"), "SIGTERM"), (("--signal=INT", "--batch"), "SIGINT")],
)
def test_a_pilot_that_slurm_signals_gives_its_job_back(
    instance: Instance, cluster: slurm.Cluster, tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    """`scancel` sends SIGTERM, and SIGKILL after KillWait: the payload is told, and its job loses no try."""
    job, pilot = start(instance, tmp_path)
    cluster.run("scancel", *options, pilot.batch_id)
    assert instance.reaches(job, "Done", within=2 * PATIENCE).failures == 0
    assert (tmp_path / "caught").read_text() == "caught\n"
    row = ended(instance, pilot.id)
    assert (row.state, row.reason) == ("Done", f"received {name}")
    events = instance.client().events(job)
    assert [event.detail for event in events if event.kind == "released"] == [f"received {name}"]
    attempts = instance.client().job(job).attempts
    assert [attempt.outcome for attempt in attempts] == ["released", "applied"]
    client = instance.client()
    assert client.log(job, attempt=1).data == b"begins\nends\n"
    assert client.log(job).data == client.log(job, attempt=2).data == b"begins\n"
    with pytest.raises(NotFound, match="no attempt 3"):
        client.log(job, attempt=3)


def test_a_payload_that_ignores_signals_is_killed_with_its_pilot(
    instance: Instance, cluster: slurm.Cluster, tmp_path: Path
) -> None:
    deaf = PAYLOAD.replace("echo caught >> {marks}/caught; echo ends; exit 9", "").replace(
        "sleep 0.1", "sleep 0.1 || :"
    )
    job, pilot = start(instance, tmp_path, deaf)
    cluster.run("scancel", pilot.batch_id)
    assert instance.reaches(job, "Done", within=2 * PATIENCE).failures == 0
    assert ended(instance, pilot.id).state == "Done"
    until(lambda: not processes_of(cluster, pilot.batch_id), what="the end of its processes")


def test_a_node_that_crashes_and_boots_again(
    instance: Instance, cluster: slurm.Cluster, tmp_path: Path
) -> None:
    """All of its processes are gone without a word. Slurm does not start the pilot again by itself."""
    job, pilot = start(instance, tmp_path)
    cluster.kill("n1")
    payload = int((tmp_path / "first").read_text())
    assert alive(payload)
    pids = processes_of(cluster, pilot.batch_id)
    assert pids
    # A payload has none of Slurm's variables.
    for pid in {*pids, payload}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(payload), what="the end of the payload")
    cluster.start_node("n1")
    assert instance.reaches(job, "Done", within=PATIENCE).failures == 1
    row = ended(instance, pilot.id)
    assert row.state == "Failed"
    assert row.reason.startswith("its batch job has ended without a word")
    assert [attempt.outcome for attempt in instance.client().job(job).attempts] == ["lease over", "applied"]


def killed_at_once(cluster: slurm.Cluster, batch_id: str) -> bool:
    """Kill all processes of a batch job, and tell whether there were any.

    The youngest is the first: the pilot dies before Slurm sees the end of its script and warns the others.
    """
    pids = sorted(processes_of(cluster, batch_id), reverse=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def test_a_controller_that_forgets_ended_jobs_at_once(cluster: slurm.Cluster, tmp_path: Path) -> None:
    """Slurm has purged the pilots before the next listing: two listings without them say that they have ended."""
    with instance_on(cluster, tmp_path, settle="3", listing_period="6", lease="3600") as instance:
        jobs, gate = SLURM.submit_held(instance, 6)
        client = instance.client()
        # One without a job may leave by itself before the kill.
        running = [pilot for pilot in client.pilots() if pilot.jobs and not pilot.ended]
        killed = {pilot.id for pilot in running if killed_at_once(cluster, pilot.batch_id)}
        assert killed
        gate.touch()
        until(lambda: not cluster.run("squeue", "-h", "--states=all"), what="Slurm's purge")
        assert_all_done(instance, cluster, jobs, 6)
        ends = {(pilot.state, pilot.reason) for pilot in client.pilots() if pilot.id in killed}
        assert {state for state, _ in ends} == {"Failed"}, ends
        assert all(reason.startswith("its batch job has ended without a word") for _, reason in ends), ends
