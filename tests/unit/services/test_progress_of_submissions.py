"""`submission show`: failures that differ in amounts only are one, and Done jobs without an output are told."""

from __future__ import annotations

from pilotage.services.submission.progress import progress_of
from pilotage.store.tables import submission_listing
from pilotage.store.tables.selections import Viewer
from pilotage.wire.submission_progress import SubmissionProgress
from tests.unit.services.bench import Bench


def progress(bench: Bench, job: int) -> SubmissionProgress:
    everybody = Viewer("", everything=True)
    submission = bench.job(job)["submission_id"]
    figures = submission_listing.one(bench.connection, everybody, submission)
    assert figures is not None
    return progress_of(bench.connection, figures, bench.now)


def test_failures_that_differ_in_an_amount_only_are_one_group(bench: Bench) -> None:
    jobs = bench.submit(4)
    pilot = bench.pilot(processors=4)
    for place, offer in enumerate(pilot.take(4, processors=4)):
        assert pilot.confirm(offer) == "accepted"
        if place < 2:
            message = f"{1065 + place} MB of 1000 MB"
            pilot.finish(offer, exit_code=None, signal=9, failure="limit-memory", message=message)
        else:
            pilot.finish(offer, exit_code=place, failure="payload", message=f"exit code {place}")
    found = progress(bench, jobs[0])
    assert sorted(group.count for group in found.failures) == [1, 1, 2]
    assert found.incomplete == []


def test_done_jobs_without_an_output_are_told(bench: Bench) -> None:
    jobs = bench.submit(3, output_sandbox=("x.root",))
    pilot = bench.pilot(processors=4)
    for place, offer in enumerate(pilot.take(3, processors=4)):
        assert pilot.confirm(offer) == "accepted"
        pilot.finish(offer, missing=["x.root"] if place else [])
    found = progress(bench, jobs[0])
    assert len(found.incomplete) == 2
    assert found.failures == []
