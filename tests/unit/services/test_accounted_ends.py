"""Ends that a listing does not explain, and the accounting of a batch system."""

from __future__ import annotations

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState
from pilotage.services.director.accounted_ends import unexplained, with_accounted
from pilotage.services.director.listing_comparison import ListingComparison, Observation
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow

STAMP = "pilotage-1"


def task(index: int | None, state: NativeState, native: str = "", array: str = "7") -> ListedTask:
    batch_id = array if index is None else f"{array}_{index}"
    return ListedTask(STAMP, index, batch_id, state, native or str(state), "", "n1", array)


def comparison(
    *tasks: ListedTask,
    phase: SubmissionPhase = SubmissionPhase.RELEASED,
    indexes: frozenset[int] | None = None,
) -> ListingComparison:
    row = PilotSubmissionRow(1, STAMP, "ce", phase, 3, "7", "epoch", None, "", 50.0, 0, "", None)
    observation = Observation(row, tasks, indexes)
    return ListingComparison(BatchListing("epoch", tasks), 100.0, frozenset({STAMP}), (), [observation])


RUNNING, ENDED = NativeState.RUNNING, NativeState.ENDED


def test_the_accounting_is_asked_about_missing_and_ended_batch_jobs_only() -> None:
    everything = [task(index, RUNNING) for index in range(3)]
    assert unexplained(comparison(*everything)) == {}
    assert unexplained(comparison(*everything[:2])) == {STAMP: 50.0}
    assert unexplained(comparison(*everything[1:])) == {STAMP: 50.0}
    assert unexplained(comparison(*everything[:2], task(2, ENDED))) == {STAMP: 50.0}
    assert unexplained(comparison(task(None, RUNNING))) == {}
    assert unexplained(comparison(*everything[:1], indexes=frozenset({0}))) == {}
    assert unexplained(comparison(*everything[:2], phase=SubmissionPhase.IN_DOUBT)) == {}


def test_the_accounting_explains_what_the_listing_does_not() -> None:
    ends = [task(0, ENDED, "TIMEOUT"), task(1, ENDED, "NODE_FAIL"), task(None, ENDED, "CANCELLED")]
    before = comparison(task(0, RUNNING), task(1, ENDED, "FAILED"))
    [observation] = with_accounted(before, ends).observations
    assert {known.index: known.native for known in observation.tasks} == {
        0: "running",
        1: "NODE_FAIL",
        2: "CANCELLED",
    }


def test_the_end_of_another_batch_job_of_the_same_name_says_nothing() -> None:
    before = comparison(task(0, RUNNING))
    assert (
        with_accounted(before, [task(None, ENDED, "CANCELLED", array="8")]).observations
        == before.observations
    )
    doubtful = comparison(task(0, RUNNING), phase=SubmissionPhase.IN_DOUBT)
    assert with_accounted(doubtful, [task(None, ENDED)]).observations == doubtful.observations
    assert with_accounted(before, []) is before


def test_a_batch_job_that_runs_by_the_accounting_is_noted_and_not_listed() -> None:
    told = [task(1, RUNNING), task(2, ENDED, "TIMEOUT")]
    [observation] = with_accounted(comparison(task(0, RUNNING)), told).observations
    assert observation.accounted == {1}
    assert sorted(known.index or 0 for known in observation.tasks) == [0, 2]
