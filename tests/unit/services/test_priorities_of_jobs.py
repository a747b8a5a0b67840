"""Priorities that a person gives to jobs that exist, on both stores."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.services.jobs.actions import CHUNK, check_verb
from tests.unit.services.bench import Bench, Paper
from tests.unit.services.test_dependent_jobs import FAILS, settle


def given(pilot: Paper, count: int) -> list[int]:
    """The next jobs that the pilot gets, sorted."""
    return sorted(offer.job for _ in range(count) for offer in pilot.take())


def test_a_higher_priority_of_the_same_owner_goes_first_in_whatever_queue_it_waits(bench: Bench) -> None:
    """The queue with more jobs of priority 1 would win nearly every draw."""
    low = bench.submit(30)
    high = bench.submit(3, user_priority=10, cpu_time=5000) + bench.submit(2, user_priority=10)
    pilot = bench.pilot()
    assert given(pilot, len(high)) == sorted(high)
    last = bench.submit(1, user_priority=2)
    assert given(pilot, 1) == last
    assert set(given(pilot, 30)) == set(low)
    bench.check()


def test_jobs_with_a_higher_priority_go_first(bench: Bench) -> None:
    """A priority of 0 waits for every other one."""
    jobs = bench.submit(6)
    low = jobs[:4]
    assert bench.act("priority", *low, priority=0).done == low
    pilot = bench.pilot()
    assert given(pilot, 2) == jobs[4:]
    assert [event.detail for event in bench.history(low[0])][1:] == ["priority 1 to 0", ""]
    bench.check()
    bench.close()
    bench.open()
    bench.check()
    assert given(bench.pilot(), 4) == low


def test_jobs_that_do_not_wait_have_it_when_they_wait_again(bench: Bench) -> None:
    [parent, held] = bench.submit(2)
    [blocked] = bench.submit(after_ok=(str(parent),))
    bench.act("hold", held)
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.confirm(offer)
    assert bench.act("priority", parent, held, blocked, priority=7).done == [parent, held, blocked]
    assert [bench.job(job)["user_priority"] for job in (parent, held, blocked)] == [7, 7, 7]
    assert [bench.state(job) for job in (parent, held, blocked)] == ["Running", "Held", "Blocked"]
    bench.act("release", held)
    pilot.finish(offer)
    settle(bench)
    assert given(pilot, 2) == [held, blocked]
    bench.check()


def test_ended_jobs_are_refused_and_an_equal_priority_changes_nothing(bench: Bench) -> None:
    first, second = bench.submit(2)
    bench.act("kill", first)
    outcome = bench.act("priority", first, second, priority=1)
    assert outcome.refused == [(first, "the job is already Killed")]
    assert outcome.done == [second]
    assert [event.kind for event in bench.history(second)] == ["submitted"]


def test_a_dry_run_counts_and_changes_nothing(bench: Bench) -> None:
    jobs = bench.submit(3)
    assert bench.act("priority", *jobs, priority=9, dry_run=True).done == jobs
    assert [bench.job(job)["user_priority"] for job in jobs] == [1, 1, 1]


def test_a_whole_submission_in_slices(bench: Bench) -> None:
    jobs = bench.submit(2 * CHUNK + 10)
    for first in range(0, len(jobs), CHUNK):
        bench.act("priority", *jobs[first : first + CHUNK], priority=5)
    assert {bench.job(job)["user_priority"] for job in jobs} == {5}
    bench.check()


@pytest.mark.parametrize(("verb", "priority"), [("priority", None), ("kill", 3), ("praise", None)])
def test_only_this_verb_takes_a_priority(verb: str, priority: int | None) -> None:
    with pytest.raises(InvalidInput, match=verb):
        check_verb(verb, priority)


def test_a_failed_parent_keeps_the_new_priority_when_it_is_tried_again(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.confirm(offer)
    bench.act("priority", job, priority=4)
    pilot.finish(offer, **FAILS)
    bench.act("reschedule", job)
    assert (bench.state(job), bench.job(job)["user_priority"]) == ("Waiting", 4)
    bench.check()
