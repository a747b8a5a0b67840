"""Runs of the twin in processes of their own. The simulations of these tests are functions of this module."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from pilotage.core.errors import Conflict
from pilotage.main.twin_runs import FinishedRuns, RunInputs, SeededRun, Simulate, run_seeds
from pilotage.twin.plan import TwinPlan, TwinProgress
from pilotage.twin.result import TwinResult
from pilotage.twin.workload import TraceJobs
from tests.unit.twin.invented_runs import CES, WEIGHTS, invented_result
from tests.unit.twin.swf_text import job

POLICY = "[groups.atlas]\n[users.ada]\ngroups = ['atlas']\n"
RUNS = [SeededRun("a", POLICY, seed) for seed in (1, 2, 3)]
Progress = Callable[[TwinProgress], None]


def finishes(plan: TwinPlan, progress: Progress) -> TwinResult:
    assert (len(plan.jobs), plan.until, plan.policy.shares()) == (2, 60.0, {"atlas": 1000.0})
    progress(TwinProgress(30.0, 1, 0, 2, 60.0))
    return invented_result(WEIGHTS, plan.seed, step=86400.0)


def refuses_seed_2(plan: TwinPlan, progress: Progress) -> TwinResult:
    if plan.seed == 2:
        raise Conflict("nothing fits", hint="give it room")
    return finishes(plan, progress)


def dies_with_seed_2(plan: TwinPlan, progress: Progress) -> TwinResult:
    if plan.seed == 2:
        os._exit(9)
    return finishes(plan, progress)


def hangs_after_seed_1(plan: TwinPlan, progress: Progress) -> TwinResult:
    while plan.seed > 1:
        signal.pause()
    return finishes(plan, progress)


def ended(simulate: Simulate, told: list[str] | None = None, interrupt_after: int = 99) -> FinishedRuns:
    def advance(done: int, total: int, text: str) -> None:
        if told is not None:
            told.append(text)
        if text.startswith(f"{interrupt_after} of"):
            raise KeyboardInterrupt

    inputs = RunInputs(TraceJobs([job(1), job(2)]), CES, 60.0, simulate)
    return run_seeds(RUNS, inputs, 2, advance, tells_time=True)


def test_all_seeds_are_run_and_told() -> None:
    told: list[str] = []
    finished = ended(finishes, told)
    assert {run.seed: measures.seed for run, measures in finished.measures.items()} == {1: 1, 2: 2, 3: 3}
    assert not finished.failures
    assert not finished.interrupted
    assert told[-1] == "3 of 3 runs done"
    assert any(text.endswith(" left") for text in told)


@pytest.mark.parametrize(
    ("simulate", "reason"),
    [(refuses_seed_2, "nothing fits (give it room)"), (dies_with_seed_2, "its process ended with code 9")],
)
def test_one_failed_run_leaves_the_others(simulate: Simulate, reason: str) -> None:
    finished = ended(simulate)
    assert [run.seed for run in finished.measures] == [1, 3]
    assert finished.failures == {RUNS[1]: reason}


def test_an_interruption_keeps_the_finished_runs() -> None:
    finished = ended(hangs_after_seed_1, interrupt_after=1)
    assert finished.interrupted
    assert [run.seed for run in finished.measures] == [1]
    assert not finished.failures


def takes_interruptions(plan: TwinPlan, progress: Progress) -> TwinResult:
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        raise Conflict("an interruption would have ended this run as it began")
    return finishes(plan, progress)


def test_an_interruption_of_all_processes_reaches_the_parent_alone() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert not ended(takes_interruptions).failures
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before, "the parent takes it again"
