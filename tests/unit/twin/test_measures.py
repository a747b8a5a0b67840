"""The figures of a run, on a run that is small enough to compute by hand."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.measures import RunMeasures, measure_run
from pilotage.twin.result import (
    JobRun,
    JobRuns,
    PilotRun,
    PilotRuns,
    TwinCounts,
    TwinOutcome,
    TwinResult,
    TwinSample,
    TwinSamples,
)
from tests.unit.twin.invented_runs import WEIGHTS, invented_result, policy_of

CES = (TwinCe("grid", (TwinNodes(2, 2),)),)


def run_of(number: int, group: str, start: float | None, end: float | None, **facts: object) -> JobRun:
    outcome = TwinOutcome.WAITING if start is None else TwinOutcome.RUNNING
    given = {
        "owner": f"{group}-0",
        "processors": 1,
        "submit": 0.0,
        "attempts": 0 if start is None else 1,
        "outcome": TwinOutcome.DONE if end is not None else outcome,
        "used": 0.0 if start is None else (end or 1000.0) - start,
        "run": (end or 1000.0) - (start or 0.0),
    }
    return JobRun(number=number, group=group, start=start, end=end, **{**given, **facts})  # type: ignore[arg-type]


def measured() -> RunMeasures:
    """Groups a and b have equal shares of four cores; a uses three of them until 800, though b has three jobs."""
    jobs, pilots, samples = JobRuns(), PilotRuns(), TwinSamples(("a", "b"))
    for number in range(3):
        jobs.add(run_of(number, "a", 0.0, 800.0, owner=f"a-{number % 2}"))
    jobs.add(run_of(3, "b", 0.0, 1000.0))
    jobs.add(run_of(4, "b", 800.0, None, attempts=2))
    jobs.add(run_of(5, "b", None, None))
    jobs.add(run_of(6, "b", None, None, submit=1000.0))
    for place in range(11):
        now = place * 100.0
        used = {"a": 3 * min(now, 800.0), "b": now + max(0.0, now - 800.0)}
        samples.add(TwinSample(now, used, 4 if place < 8 else 2, 0, 0, 2, 4))
    pilots.add(PilotRun("grid", 2, 0.0, 0.0, 1000.0, 1600.0, 100.0, 200.0, 100.0))
    pilots.add(PilotRun("grid", 2, 5.0, None, None, 0.0, 0.0, 0.0, 0.0))
    result = TwinResult(3, 1000.0, jobs, pilots, samples, TwinCounts(7, 6, 99), 1.5)
    return measure_run(result, policy_of({"a": 1.0, "b": 1.0}), CES)


def test_jobs_are_counted_by_their_outcome() -> None:
    run = measured()
    assert run.outcomes == {"done": 4, "running": 1, "waiting": 2}
    assert (run.repeated, run.matches, run.exchanges, run.last_submission) == (1, 6, 99, 1000.0)


def test_open_waits_count_until_the_end() -> None:
    a, b = sorted(measured().groups, key=lambda group: group.group)
    assert (a.jobs, a.waiting, a.waits) == (3, 0, (0.0, 0.0, 0.0, 0.0))
    assert (b.jobs, b.waiting) == (4, 2)
    assert b.waits == pytest.approx(tuple(np.quantile([0, 800, 1000, 0], [0.1, 0.5, 0.9, 0.99])))


def test_a_group_is_entitled_to_its_share() -> None:
    """In the ideal, a has two cores until 800, then the two that are used until it is done."""
    a, b = sorted(measured().groups, key=lambda group: group.group)
    assert (a.used, b.used) == pytest.approx((2400.0, 1200.0))
    assert (a.entitled, b.entitled) == pytest.approx((2 * 800.0 + 1 * 200.0, 2 * 800.0 + 1 * 200.0))


def test_an_owner_is_entitled_to_an_equal_part_of_the_group() -> None:
    owners = {party.owner: party for party in measured().owners}
    # Each has one core until 800; then a-1 has no work left, and a-0 has the one core of the group.
    assert owners["a-0"].entitled == pytest.approx(800.0 + 200.0)
    assert owners["a-1"].entitled == pytest.approx(800.0)
    assert owners["a-0"].used == pytest.approx(1600.0)


def test_members_of_a_sharing_group_have_no_entitlement_of_their_own() -> None:
    from pilotage.core.policy import parse

    text = "[groups.atlas]\nproperties = ['NORMAL_USER', 'JOB_SHARING']\n[users.x]\ngroups = ['atlas']"
    run = measure_run(invented_result({"atlas": 1.0}, 1), parse(text), CES)
    assert {owner.entitled for owner in run.owners} == {0.0}


def test_pilots_are_summed_by_ce() -> None:
    (ce,) = measured().ces
    assert (ce.name, ce.cores, ce.pilots, ce.never_began) == ("grid", 4, 2, 1)
    assert (ce.payload, ce.startup, ce.idle, ce.lost) == (1600.0, 100.0, 200.0, 100.0)


def test_curves_tell_the_cores_of_each_group() -> None:
    curves = measured().curves
    assert curves.times == tuple(100.0 * place for place in range(10))
    assert curves.used[0] == pytest.approx([3.0] * 8 + [0.0] * 2)
    assert curves.busy == (4.0,) * 8 + (2.0,) * 2


def test_a_run_without_jobs_has_figures() -> None:
    empty = TwinResult(1, 0.0, JobRuns(), PilotRuns(), TwinSamples(()), TwinCounts(), 0.0)
    run = measure_run(empty, policy_of({"a": 1.0}), CES)
    assert (run.groups, run.owners, run.utilisation) == ((), (), 0.0)


def test_a_result_goes_to_another_process() -> None:
    result = invented_result(WEIGHTS, 1)
    again = pickle.loads(pickle.dumps(result))
    for name in ("jobs", "pilots", "samples"):
        assert getattr(again, name).rows.tobytes() == getattr(result, name).rows.tobytes()


def test_200_000_jobs_take_some_ten_megabytes() -> None:
    jobs = JobRuns()
    for number in range(2000):
        jobs.add(run_of(number, "a", 0.0, 1.0))
    assert jobs.rows.nbytes / len(jobs) * 200_000 < 15e6
