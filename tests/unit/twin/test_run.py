"""Whole runs of small traces."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pilotage.core.errors import PilotageError
from pilotage.core.policy import parse
from pilotage.core.queues.candidates import Candidates
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.plan import TwinPlan, TwinProgress
from pilotage.twin.result import TwinOutcome, TwinResult
from pilotage.twin.run import run_twin
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJob, TraceJobs

CE = TwinCe("farm", (TwinNodes(4, 2),), start_delay=5.0)


def small_trace(count: int = 40) -> TraceJobs:
    """Jobs of two groups, a few at a time; every fifth has two cores."""
    return TraceJobs(
        TraceJob(
            number,
            submit=10.0 * number,
            run=60.0 + 7.0 * (number % 11),
            processors=2 if number % 5 == 0 else 1,
            memory=0,
            wall=0.0,
            owner=f"user{number % 3}",
            group="one" if number % 3 else "two",
        )
        for number in range(1, count + 1)
    )


def run(jobs: TraceJobs, seed: int = 1, ce: TwinCe = CE, until: float | None = None) -> TwinResult:
    text = policy_of_trace(jobs, [ce], {})
    seen: list[TwinProgress] = []
    result = run_twin(TwinPlan(jobs, parse(text), text, (ce,), seed, until), seen.append)
    assert seen
    return result


def test_each_job_runs_once_to_its_end() -> None:
    jobs = small_trace()
    result = run(jobs)
    rows = result.jobs.rows
    assert list(rows["outcome"]) == [TwinOutcome.DONE] * len(jobs)
    assert list(rows["attempts"]) == [1] * len(jobs)
    assert rows["end"] - rows["start"] == pytest.approx(jobs.rows["run"])
    assert np.all(rows["start"] > rows["submit"])
    assert rows["used"].sum() == pytest.approx((jobs.rows["run"] * jobs.rows["processors"]).sum())


def test_the_cores_of_pilots_add_up() -> None:
    result = run(small_trace())
    rows = result.pilots.rows
    parts = rows["payload"] + rows["startup"] + rows["idle"] + rows["lost"]
    ended = np.where(np.isnan(rows["ended"]), result.until, rows["ended"])
    assert parts == pytest.approx(rows["processors"] * (ended - rows["started"]), abs=1e-3)
    assert rows["payload"].sum() == pytest.approx(result.jobs.rows["used"].sum())
    assert np.all(result.samples.rows["busy"] <= CE.cores)


def test_a_mistake_of_the_server_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(Candidates, "count_refusals", fail)
    with pytest.raises(PilotageError, match="the simulated server failed: IndexError"):
        run(small_trace())


def test_an_end_before_the_last_job_leaves_the_rest_as_it_is() -> None:
    result = run(small_trace(), until=200.0)
    assert result.until == pytest.approx(200.0, abs=15.0)
    outcomes = set(result.jobs.rows["outcome"])
    assert TwinOutcome.RUNNING in outcomes
    assert TwinOutcome.DONE in outcomes
    rows = result.jobs.rows[result.jobs.rows["outcome"] == TwinOutcome.RUNNING]
    assert rows["used"] == pytest.approx((result.until - rows["start"]) * rows["processors"])


def test_jobs_of_pilots_that_fail_run_again() -> None:
    failing = TwinCe("farm", (TwinNodes(4, 2),), start_delay=5.0, failure_rate=20.0)
    result = run(small_trace(20), ce=failing)
    rows = result.jobs.rows
    assert rows["attempts"].max() > 1
    assert result.pilots.rows["lost"].sum() > 0
    assert TwinOutcome.WAITING not in set(rows["outcome"])


def test_a_local_ce_starts_pilots_as_soon_as_jobs_come() -> None:
    """No iteration of the director is waited for. A pilot is as wide as its job, and none is on a second node."""
    jobs = small_trace(20)
    ce = TwinCe("farm", (TwinNodes(1, 8, 16000),), start_delay=0.0, waits=(0.5, 0.5))
    text = policy_of_trace(jobs, [ce], {}).replace('type = "slurm"', 'type = "local"')
    result = run_twin(TwinPlan(jobs, parse(text), text, (ce,), 1), lambda progress: None)
    rows = result.jobs.rows
    assert set(rows["outcome"]) == {TwinOutcome.DONE}
    waits = rows["start"] - rows["submit"]
    assert waits.min() < 1.0
    assert np.median(waits) < 5.0
    assert set(result.pilots.rows["processors"]) == {1, 2}
    assert np.all(result.samples.rows["busy"] <= 8)


def test_days_without_jobs_cost_nothing() -> None:
    """Two bursts of short jobs, weeks apart: with a cycle of the duties each second this would take minutes."""
    weeks = 30 * 86400.0
    jobs = TraceJobs(
        replace(job, submit=job.submit + weeks * (job.number > 20), run=5.0) for job in small_trace()
    )
    result = run(jobs)
    rows = result.jobs.rows
    assert list(rows["outcome"]) == [TwinOutcome.DONE] * len(jobs)
    assert np.all(rows["start"] > rows["submit"])
    assert float((rows["start"] - rows["submit"]).max()) < 300
    assert result.until > weeks
    assert result.cpu_seconds < 60


def test_a_run_may_end_while_nobody_has_jobs() -> None:
    jobs = TraceJobs(replace(job, submit=job.submit + 86400.0 * (job.number > 20)) for job in small_trace())
    result = run(jobs, until=40_000.0)
    assert 40_000.0 <= result.until < 40_100.0
    assert len(result.jobs.rows) == 20


def test_duties_run_more_often_where_jobs_are_short() -> None:
    """A job of a second waits for seconds only, though duties of long jobs run every ten."""
    jobs = TraceJobs(replace(job, run=2.0, processors=1, submit=3.0 * job.number) for job in small_trace(30))
    rows = run(jobs).jobs.rows
    assert np.median(rows["start"] - rows["submit"]) < 2.0


def fingerprint(result: TwinResult) -> bytes:
    return result.jobs.rows.tobytes() + result.pilots.rows.tobytes() + result.samples.rows.tobytes()


def test_another_seed_gives_another_run() -> None:
    assert fingerprint(run(small_trace(), 1)) != fingerprint(run(small_trace(), 2))


SCRIPT = """
import hashlib
from tests.unit.twin.test_run import fingerprint, run, small_trace
print(hashlib.sha256(fingerprint(run(small_trace(), 3))).hexdigest())
"""


def test_the_same_seed_gives_the_same_run_in_other_processes() -> None:
    root = Path(__file__).parents[3]
    told = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
