"""A job that a later submission runs again is superseded, in the transaction that creates its successor."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.parametric import bind, differs_per_job
from pilotage.core.jobs.per_job_inputs import RERUN_COLUMN
from pilotage.services.submission.job_creation import JobCreator
from tests.unit.services.bench import Bench


def rerun(bench: Bench, *jobs: int, **more: Any) -> list[int]:
    return bench.submit(names=(RERUN_COLUMN,), rows=[[job] for job in jobs], **more)


@pytest.mark.parametrize("archived", [False, True])
def test_failed_and_killed_jobs_are_superseded_wherever_they_lie(bench: Bench, archived: bool) -> None:
    killed, failed = bench.submit(2)
    bench.act("kill", killed)
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer, exit_code=3, failure="payload")
    assert bench.state(failed) == "Failed"
    if archived:
        bench.later(10.0)
        assert bench.tidy() == 2
    [first, second] = rerun(bench, killed, failed)
    assert (bench.state(killed), bench.state(failed)) == ("Superseded", "Superseded")
    assert bench.job(failed)["exit_code"] == 3
    assert bench.moves(killed)[-2:] == ["Killed", "Superseded"]
    assert bench.job(failed)["reason"] == "submission 2 runs it again"
    assert {bench.state(first), bench.state(second)} == {"Waiting"}
    bench.later(10.0)
    assert bench.tidy() == 2, "they go to history again"
    assert bench.act("reschedule", killed).refused
    assert bench.act("delete", killed).done == [killed]


def test_other_jobs_stay(bench: Bench) -> None:
    [waiting] = bench.submit()
    [done] = bench.submit(owner="bob")
    pilot = bench.pilot(only_owner="bob")
    [offer] = pilot.take()
    pilot.finish(offer)
    [foreign] = bench.submit(owner="bob")
    bench.act("kill", foreign)
    rerun(bench, waiting, done, foreign, 999)
    assert [bench.state(job) for job in (waiting, done, foreign)] == ["Waiting", "Done", "Killed"]
    rerun(bench, done, owner="bob")
    assert bench.state(done) == "Done", "it lacks no output"


def test_a_crash_supersedes_the_job_and_creates_its_successor_together_or_neither(bench: Bench) -> None:
    [old] = bench.submit()
    bench.act("kill", old)
    submission = bench.accept(bench.prepared(names=(RERUN_COLUMN,), rows=[[old]]))
    bench.crash(lambda tx: JobCreator(submission.id).step(bench.pool, tx))
    assert bench.state(old) == "Killed"
    bench.make(submission)
    assert (bench.state(old), bench.state(submission.first_job)) == ("Superseded", "Waiting")


def test_the_column_is_no_parameter() -> None:
    """`%n` and `%s` of a single job are literal texts, also when it runs again."""
    description = JobDescription(executable="date", arguments=("+%s-%n",))
    assert bind(description, (RERUN_COLUMN,), [5], 0, 1).arguments == ("+%s-%n",)
    assert not differs_per_job("run-%n", (RERUN_COLUMN,))
