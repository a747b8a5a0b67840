"""Limits on the jobs of a submission that run at once, on both stores."""

from __future__ import annotations

from collections import Counter

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import SubmissionId
from pilotage.services.jobs import parallel
from pilotage.store.tables import parallel_limits
from tests.unit.services.bench import Bench
from tests.unit.services.test_dependent_jobs import settle, states


def counted(bench: Bench, jobs: list[int]) -> dict[str, int]:
    return dict(Counter(states(bench, *jobs)))


def set_limit(bench: Bench, submission: int, running: int) -> None:
    bench.do(lambda tx: parallel.set_limit(bench.pool, tx, SubmissionId(submission), running))


def run_all(bench: Bench, jobs: list[int], most: int) -> None:
    """Run jobs with more pilots than places; some jobs are given back first."""
    pilots = [bench.pilot() for _ in range(most + 2)]
    given_back = set[int]()
    while counted(bench, jobs) != {"Done": len(jobs)}:
        taken = [(pilot, offer) for pilot in pilots for offer in pilot.take()]
        for pilot, offer in taken:
            assert pilot.confirm(offer) == "accepted"
        assert counted(bench, jobs)["Running"] == len(taken) <= most
        for pilot, offer in taken:
            if offer.job % 3 == 0 and offer.job not in given_back:
                given_back.add(offer.job)
                pilot.release(offer)
            else:
                pilot.finish(offer)


def test_no_more_jobs_than_allowed_wait_or_run(bench: Bench) -> None:
    jobs = bench.submit(25, parallel=4)
    assert counted(bench, jobs) == {"Waiting": 4, "Blocked": 21}
    run_all(bench, jobs, 4)
    bench.check()


def test_all_kinds_of_end_and_hold_give_the_place_to_another_job(bench: Bench) -> None:
    jobs = bench.submit(6, parallel=1)
    for verb, number in (("kill", 0), ("delete", 1), ("hold", 2)):
        assert states(bench, jobs[number]) == ["Waiting"]
        bench.act(verb, jobs[number])
    assert states(bench, *jobs) == ["Killed", "Deleted", "Held", "Waiting", "Blocked", "Blocked"]
    bench.act("release", jobs[2])
    bench.act("reschedule", jobs[0])
    assert states(bench, *jobs) == ["Blocked", "Deleted", "Blocked", "Waiting", "Blocked", "Blocked"]
    bench.act("kill", jobs[3])
    assert states(bench, *jobs) == ["Waiting", "Deleted", "Blocked", "Killed", "Blocked", "Blocked"]
    bench.check()


def test_the_limit_can_be_changed_and_lifted(bench: Bench) -> None:
    jobs = bench.submit(10, parallel=2)
    assert counted(bench, jobs) == {"Waiting": 2, "Blocked": 8}
    set_limit(bench, 1, 5)
    assert counted(bench, jobs) == {"Waiting": 5, "Blocked": 5}
    offer = bench.pilot().hold()
    set_limit(bench, 1, 2)
    assert counted(bench, jobs) == {"Running": 1, "Waiting": 1, "Blocked": 8}
    assert bench.state(offer.job) == "Running"
    set_limit(bench, 1, 0)
    assert counted(bench, jobs) == {"Running": 1, "Waiting": 9}
    bench.check()


def test_a_submission_gets_a_limit_later(bench: Bench) -> None:
    jobs = bench.submit(8)
    others = bench.submit(3)
    set_limit(bench, 1, 3)
    assert counted(bench, jobs) == {"Waiting": 3, "Blocked": 5}
    assert counted(bench, others) == {"Waiting": 3}
    bench.act("kill", *[job for job in jobs if bench.state(job) == "Waiting"])
    assert counted(bench, jobs) == {"Killed": 3, "Waiting": 3, "Blocked": 2}
    bench.check()


@pytest.mark.parametrize("fan_out", [2, 100])
def test_large_changes_are_made_in_slices(
    bench: Bench, fan_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "AT_ONCE", fan_out)
    jobs = bench.submit(11, parallel=7)
    assert counted(bench, jobs) == {"Waiting": 7, "Blocked": 4}
    set_limit(bench, 1, 2)
    assert counted(bench, jobs) == {"Waiting": 2, "Blocked": 9}
    set_limit(bench, 1, 0)
    assert counted(bench, jobs) == {"Waiting": 11}


def test_a_limited_submission_waits_for_its_gate_first(bench: Bench) -> None:
    [parent] = bench.submit()
    jobs = bench.submit(5, parallel=2, after=(str(parent),))
    assert counted(bench, jobs) == {"Blocked": 5}
    bench.act("kill", parent)
    assert counted(bench, jobs) == {"Waiting": 2, "Blocked": 3}
    run_all(bench, jobs, 2)


def test_a_limit_and_job_after_job_exclude_each_other(bench: Bench) -> None:
    bench.submit(3)
    bench.submit(3, after_each=("s:1",))
    with pytest.raises(InvalidInput, match="job by job"):
        set_limit(bench, 2, 1)


def test_a_settled_limit_costs_nothing_until_a_job_ends(bench: Bench) -> None:
    jobs = bench.submit(3, parallel=1)
    settle(bench)
    assert bench.do(lambda tx: parallel_limits.unsettled(tx.connection, 9)) == []
    bench.act("kill", jobs[1])
    assert states(bench, *jobs) == ["Waiting", "Killed", "Blocked"]


def test_the_reason_names_the_places(bench: Bench) -> None:
    bench.submit(3, parallel=2)
    settle(bench)
    said = bench.do(lambda tx: parallel.explain(tx.connection, 1))
    assert said == "2 of 2 jobs of submission 1 run or wait for a pilot"
