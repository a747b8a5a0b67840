"""The director at work: pilots in a real Slurm by the demand of "DIRAC Taskqueue Director", explained by command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.core.errors import Forbidden, InvalidInput
from pilotage.wire.jobs import Selection
from tests import slurm
from tests.acceptance.test_slurm import SLURM_CE
from tests.instance import Instance, started, until

pytestmark = pytest.mark.slow

JOBS = 30
"""More than the CE runs at once: 8 pilots of two cores."""
DIRECTOR = """\
[director]
demand = "dirac"
period = 1
SubmitPools = ["DIRAC", "Local", "Batch"]
DefaultSubmitPools = ["Batch"]
[director.pools.Batch]
maxThreadsInPool = 1
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with slurm.cluster(nodes=2, processors=8) as cluster:
        made = Instance(tmp_path_factory.mktemp("director"))
        begin, _, rest = made.policy.partition("[ces.local]")
        made.policy = begin + SLURM_CE + DIRECTOR + "[jobs]" + rest.partition("[jobs]")[2]
        made.environment = cluster.environment
        with started(made):
            yield made


def test_jobs_run_by_the_documents_demand_and_the_iteration_is_explained(instance: Instance) -> None:
    client = instance.client()
    dry = instance.cli("director", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "nothing is submitted" in dry.stdout
    assert "of 100 submissions, 1 at the same time" in dry.stdout
    # More jobs than pilots take at once, so that the queue is there in each iteration.
    gate = instance.home / "gate"
    held = {"executable": "sh", "arguments": ["-c", f"until [ -e {gate} ]; do sleep 0.1; done"]}
    sent = client.submit({**held, "job_group": "many"}, values=range(JOBS))

    def explained() -> dict[str, Any] | None:
        """The report of an iteration with the queue of the jobs, not of a dry run."""
        told = instance.cli("director", "--explain", "--json")
        report: dict[str, Any] = json.loads(told.stdout) if told.returncode == 0 else {}
        return report if report.get("queues") and report["acted"] else None

    report = until(explained, what="an iteration with the queue")
    [queue] = report["queues"]
    assert (report["acted"], report["demand"], queue["pool"]) == (True, "dirac", "Batch")
    assert report["parameters"]["pilotsPerIteration"] == 100
    assert queue["boost"] == pytest.approx(300000 / 7200)
    # The CE may have been too new at the first iterations: its cycle has not begun yet.
    opened = "the CPU time of an open CE"
    until(lambda: "s CPU time at speed 1" in instance.cli("director", "--explain").stdout, what=opened)
    gate.touch()
    selection = Selection(submission=sent.submission)
    until(lambda: client.counts(selection).final == JOBS, what="the end of all jobs")
    assert client.counts(selection).states == {"Done": JOBS}
    pilot = next(iter(client.pilots()))
    detail = client.pilot(pilot.id)
    assert detail.queue == queue["queue"]
    assert detail.pilot_type in ("private", "generic")
    shown = instance.cli("pilot", "show", str(pilot.id)).stdout
    assert "submitted for queue" in shown


def test_a_queue_for_an_unknown_pool_is_told_so(instance: Instance) -> None:
    client = instance.client()
    # A pilot that is there would take the job: pools concern the submission of pilots only.
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of idle pilots")
    sent = client.submit({"executable": "true", "submit_pools": ["SAM"]})
    assert any("no pool SAM" in warning for warning in sent.warnings)
    why = client.why(sent.first)
    assert (why.reason, why.detail) == ("pool", "SAM: unknown")
    report = client.director(dry_run=True, queue=why.queue, seed=7)
    [row] = report.queues
    assert (row.submitted, row.pools_tried) == (0, {"SAM": "unknown"})
    assert row.ces["slurm"].startswith("it is in pool Batch")
    client.kill([sent.first])


def test_only_administrators_are_told(instance: Instance) -> None:
    with pytest.raises(Forbidden):
        instance.client("bob").director()


def test_bad_input_is_refused(instance: Instance) -> None:
    for arguments in (["--explain", "--dry-run"], ["--seed", "3"], ["--dry-run", "--seed", "-1"]):
        refused = instance.cli("director", *arguments)
        assert refused.returncode == 2, arguments
        assert "Traceback" not in refused.stderr
    refused = instance.cli("director", "--dry-run", "--queue", "999999")
    assert "took no part" in refused.stderr
    with pytest.raises(InvalidInput):
        instance.client().director(seed=2**60, dry_run=True)
