"""Jobs that a person holds and releases, on both stores."""

from __future__ import annotations

from tests.unit.services.bench import Bench
from tests.unit.services.test_dependent_jobs import FAILS, end, states


def test_a_held_job_is_given_to_no_pilot_and_keeps_its_place(bench: Bench) -> None:
    first, second, third = bench.submit(3)
    assert bench.act("hold", first, second).done == [first, second]
    assert states(bench, first, second, third) == ["Held", "Held", "Waiting"]
    assert bench.job(first)["reason"] == "held by alice"
    pilot = bench.pilot()
    assert [offer.job for offer in pilot.take(3)] == [third]
    assert bench.act("release", second).done + bench.act("release", first).done == [second, first]
    later = bench.submit(500)
    # A queue gives jobs at random among its first few, which have the lowest ids.
    assert max(offer.job for offer in pilot.take(2)) < later[-1] - 400
    assert bench.job(first)["reason"] == ""
    assert [event.kind for event in bench.history(first)][:3] == ["submitted", "held", "hold-over"]
    bench.check()


def test_only_jobs_that_have_not_started_can_be_held(bench: Bench) -> None:
    jobs = bench.submit(2)
    pilot = bench.pilot()
    [offer] = pilot.take()
    job, [other] = offer.job, [each for each in jobs if each != offer.job]
    [(_, why)] = bench.act("hold", job).refused
    assert why == "the job is Matched: only jobs that have not started can be held"
    pilot.confirm(offer)
    [(_, why)] = bench.act("hold", job).refused
    assert why == "the job is Running: only jobs that have not started can be held"
    pilot.finish(offer)
    assert bench.act("hold", job).refused == [(job, "the job is already Done")]
    assert bench.act("hold", other, dry_run=True).done == [other]
    assert bench.act("release", other).refused == [(other, "the job is Waiting: it is not held")]
    bench.act("hold", other)
    assert bench.act("hold", other).refused == [(other, "the job is already Held")]


def test_a_job_between_two_attempts_can_be_held(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.confirm(offer)
    pilot.finish(offer, failure="node")
    assert bench.state(job) == "Rescheduled"
    bench.act("hold", job)
    bench.later(10_000.0)
    bench.duties()
    assert states(bench, job) == ["Held"]
    bench.act("release", job)
    assert states(bench, job) == ["Waiting"]
    bench.check()


def test_held_jobs_can_be_killed_rescheduled_and_deleted(bench: Bench) -> None:
    killed, deleted = bench.submit(2, hold=True)
    assert states(bench, killed, deleted) == ["Held", "Held"]
    bench.act("kill", killed)
    bench.act("delete", deleted)
    assert states(bench, killed, deleted) == ["Killed", "Deleted"]
    bench.act("reschedule", killed)
    assert states(bench, killed) == ["Waiting"]
    bench.check()


def test_a_released_job_goes_back_to_its_gate(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),))
    bench.act("hold", child)
    assert states(bench, child) == ["Held"]
    bench.act("release", child)
    assert states(bench, child) == ["Blocked"]
    bench.act("hold", child)
    pilot = bench.pilot()
    end(bench, pilot, parent)
    assert states(bench, child) == ["Held"]
    bench.act("release", child)
    assert states(bench, child) == ["Waiting"]
    bench.check()


def test_a_job_released_after_its_parent_failed_is_skipped(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after_ok=(str(parent),), hold=True)
    end(bench, bench.pilot(), parent, **FAILS)
    assert states(bench, child) == ["Held"]
    bench.act("release", child)
    assert states(bench, child) == ["Skipped"]


def test_a_held_parent_keeps_its_dependants_blocked(bench: Bench) -> None:
    [parent] = bench.submit()
    [child] = bench.submit(after=(str(parent),))
    bench.act("hold", parent)
    assert states(bench, parent, child) == ["Held", "Blocked"]
    bench.act("kill", parent)
    assert states(bench, child) == ["Waiting"]


def test_the_queue_of_held_jobs_stays(bench: Bench) -> None:
    """Its row is deleted a day after its last job that may return to it."""
    [job] = bench.submit(hold=True)
    bench.duties()
    bench.later(200_000.0)
    bench.duties()
    bench.crash()
    assert states(bench, job) == ["Held"]
    bench.act("release", job)
    assert [offer.job for offer in bench.pilot().take()] == [job]
