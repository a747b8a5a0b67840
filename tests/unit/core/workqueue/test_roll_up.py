"""States of requests from states of elements: never backwards, never stalled."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from pilotage.core.jobs.states import JobState
from pilotage.core.requests.states import ACTIVE, REQUEST_STATES, RequestState
from pilotage.core.workqueue.roll_up import (
    ROLLED,
    PartProgress,
    WholeProgress,
    next_states,
    progress_of_whole,
    state_of_element,
    state_of_job,
)
from pilotage.core.workqueue.states import ElementJobState, ElementState

E, R = ElementState, RequestState
SETS = [set(part) for size in range(4) for part in combinations(E, size)]


@pytest.mark.parametrize("current", ACTIVE)
def test_every_step_is_a_move_of_the_table(current: RequestState) -> None:
    for states, (closed, ended, has_jobs) in product(SETS, product((False, True), repeat=3)):
        state = current
        for following in next_states(current, states, closed=closed, ended=ended, has_jobs=has_jobs):
            REQUEST_STATES.check(state, following)
            state = following


@pytest.mark.parametrize("current", sorted(ROLLED))
def test_a_request_whose_steps_have_ended_ends(current: RequestState) -> None:
    for states in SETS:
        if states <= {E.DONE, E.FAILED, E.CANCELED}:
            way = next_states(current, states, closed=True, ended=True, has_jobs=True)
            assert way[-1] is (R.ABORTED_COMPLETED if current is R.ABORTED else R.COMPLETED)


def test_only_a_request_without_jobs_fails() -> None:
    def way(has_jobs: bool) -> tuple[RequestState, ...]:
        return next_states(R.ACQUIRED, {E.FAILED}, closed=True, ended=True, has_jobs=has_jobs)

    assert way(False) == (R.FAILED,)
    assert way(True) == (R.RUNNING_OPEN, R.RUNNING_CLOSED, R.COMPLETED)


def test_a_request_does_not_close_before_its_steps() -> None:
    def way(closed: bool) -> tuple[RequestState, ...]:
        return next_states(R.ACQUIRED, {E.RUNNING, E.DONE}, closed=closed, ended=False, has_jobs=True)

    assert way(closed=False) == (R.RUNNING_OPEN,)
    assert way(closed=True) == (R.RUNNING_OPEN, R.RUNNING_CLOSED)


def test_a_forced_or_aborted_request_only_ends() -> None:
    for current in (R.ABORTED, R.FORCE_COMPLETE):
        for states in SETS:
            assert not next_states(current, states, closed=True, ended=False, has_jobs=True)


@pytest.mark.parametrize(
    ("state", "unfinished", "done", "failed", "canceled", "expected"),
    [
        (E.RUNNING, 1, 2, 3, 0, None),
        (E.RUNNING, 0, 4, 0, 0, E.DONE),
        (E.RUNNING, 0, 4, 1, 0, E.FAILED),
        (E.RUNNING, 0, 0, 1, 1, E.CANCELED),
        (E.RUNNING, 0, 9, 0, 1, E.CANCELED),
        (E.CANCEL_REQUESTED, 0, 0, 0, 0, E.CANCELED),
        (E.CANCEL_REQUESTED, 0, 3, 0, 0, E.CANCELED),
        (E.CANCEL_REQUESTED, 2, 0, 0, 0, None),
        (E.ACQUIRED, 0, 0, 0, 0, None),
        (E.DONE, 0, 0, 1, 0, None),
    ],
)
def test_an_element_ends_with_its_jobs(
    state: ElementState, unfinished: int, done: int, failed: int, canceled: int, expected: ElementState | None
) -> None:
    counts = {"unfinished": unfinished, "done": done, "failed": failed, "canceled": canceled}
    assert state_of_element(state, **counts) is expected


def test_equal_parts_weigh_by_their_number() -> None:
    alike = [PartProgress(E.RUNNING, 40, 40)] * 3 + [PartProgress(E.DONE, 100, 99)]
    grouped = [
        PartProgress(E.RUNNING, 40, 40, 3),
        PartProgress(E.DONE, 100, 99),
        PartProgress(E.FAILED, 9, 9, 0),
    ]
    assert progress_of_whole(alike, E.ACQUIRED) == progress_of_whole(grouped, E.ACQUIRED)
    assert progress_of_whole(grouped, E.ACQUIRED) == WholeProgress(E.RUNNING, E.RUNNING, 55, 54)


def test_ends_of_pool_jobs() -> None:
    J = ElementJobState
    assert state_of_job(JobState.DONE, canceling=False) is J.DONE
    assert state_of_job(JobState.DONE, canceling=True) is J.DONE
    assert state_of_job(JobState.FAILED, canceling=False) is None
    assert state_of_job(JobState.KILLED, canceling=False) is J.EXHAUSTED
    for outcome in (JobState.FAILED, JobState.KILLED, JobState.DELETED):
        assert state_of_job(outcome, canceling=True) is (
            J.EXHAUSTED if outcome is JobState.FAILED else J.CANCELED
        )
        assert state_of_job(outcome, canceling=True, failed_before=True) is J.EXHAUSTED
