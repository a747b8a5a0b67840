"""The director's server is killed at chosen moments: pilots are found by their stamp, and cost no job a try."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.pool import PilotSummary
from tests.deadlines import PATIENCE
from tests.faults.audit import audit, audit_postgresql
from tests.instance import Instance, alive, until
from tests.postgres import server

pytestmark = pytest.mark.slow

DYING = str(Path(__file__).with_name("dying_server.py"))


@pytest.fixture(params=["sqlite", "postgresql"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    database = server().migrated() if request.param == "postgresql" else ""
    url = server().tcp(database) if database else ""
    made = Instance(tmp_path, database_url=url, processors=1, heartbeat=0.5)
    yield made
    made.close()
    if database:
        server().drop(database)


def pilots_of(instance: Instance) -> list[PilotSummary]:
    return list(instance.client().pilots())


def killed_while_starting(instance: Instance, moment: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> int:
    """Submit a job to a server that is killed while it starts the job's pilot."""
    instance.start()
    instance.apply()
    instance.stop_server()
    patch.setenv("PILOTAGE_TEST_DIES", moment)
    patch.setenv("PILOTAGE_TEST_MARKER", str(tmp_path / "marker"))
    # What the environment says of a batch job is not ours.
    patch.setenv("SLURM_JOB_ID", "991")
    patch.setenv("JOB_ID", "17")
    instance.program = (DYING,)
    instance.start()
    script = f"touch {tmp_path}/marker; while [ ! -e {tmp_path}/go-on ]; do sleep 0.05; done"
    job = instance.client().submit({"executable": "sh", "arguments": ["-c", script]}).first
    assert instance.process is not None
    assert instance.process.wait(2 * PATIENCE) == -9
    instance.program = ("-m", "pilotage.main")
    instance.start()
    return job


def ends_well(instance: Instance, job: int, tmp_path: Path) -> None:
    (tmp_path / "go-on").touch()
    done = instance.reaches(job, "Done")
    assert (done.attempt, done.failures) == (1, 0)
    url = instance.database_url
    instance.close()
    assert (audit_postgresql(url) if url else audit(instance.home)) == {"Done": 1}


def test_a_living_pilot_whose_start_was_not_recorded_is_adopted_with_its_job(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = killed_while_starting(instance, "called-home", tmp_path, monkeypatch)
    until(
        lambda: pilots_of(instance)[0].batch_id[:1].isdigit(), what="its adoption by a cycle of the director"
    )
    [pilot] = pilots_of(instance)
    assert pilot.state == "Running"
    [guardian] = instance.pilot_pids()
    assert alive(guardian)
    assert pilot.batch_id.startswith(f"{guardian}:")
    assert instance.job(job).state == "Running"
    assert instance.events(job)[-1] == "confirmed"
    ends_well(instance, job, tmp_path)


@pytest.mark.parametrize("moment", ["intent", "half"])
def test_an_intent_that_never_ran_frees_its_cores_at_once(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    job = killed_while_starting(instance, moment, tmp_path, monkeypatch)
    # The CE has one core: the next pilot needs that of the first. It used to be blocked for a minute.
    begun = time.time()
    instance.reaches(job, "Running")
    first, second = sorted(pilots_of(instance), key=lambda pilot: pilot.id)
    assert first.state == "Aborted"
    assert first.ended is not None
    assert first.ended - begun < 50, (
        "the start of the second pilot may take long, the end of the first may not"
    )
    assert second.state == "Running"
    ends_well(instance, job, tmp_path)


def test_a_server_inside_a_batch_job_keeps_its_pilots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_ID", "OAR_JOB_ID"):
        monkeypatch.setenv(name, "991")
    instance = Instance(tmp_path, heartbeat=0.5)
    try:
        instance.start()
        instance.apply()
        script = "env > env; sleep 4"
        description = {"executable": "sh", "arguments": ["-c", script], "output_sandbox": ["env"]}
        job = instance.client().submit(description).first
        done = instance.reaches(job, "Done", "Failed")
        assert (done.state, done.attempt) == ("Done", 1)
        [pilot] = pilots_of(instance)
        assert pilot.batch_id.partition(":")[0].isdecimal()
        assert instance.events(job).count("offered") == 1
    finally:
        instance.close()
    assert audit(instance.home) == {"Done": 1}
