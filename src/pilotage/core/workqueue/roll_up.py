"""How the states of jobs become states of elements, and states of elements the state of their request.

The table is WMCore's. A report never lowers a state. The table may name a state that the request cannot reach from its
present one. The request then takes the nearest one, so that no request stalls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pilotage.core.jobs.states import JobState
from pilotage.core.requests.states import RequestState, states_between
from pilotage.core.workqueue.states import ElementJobState, ElementState

E, R = ElementState, RequestState

ENDED = frozenset({E.DONE, E.FAILED, E.CANCELED})
ROLLED = frozenset({R.ACQUIRED, R.RUNNING_OPEN, R.RUNNING_CLOSED, R.FORCE_COMPLETE, R.ABORTED})
"""The states from which the roll-up moves a request. Intake moves it before."""
CANCELING = R.ABORTED
"""Stands for WMCore's word "canceled": the agents have not stopped yet."""


GO_ON_WHEN_FORCED = frozenset({"Merge", "Cleanup", "LogCollect"})
"""The types of steps that a force-complete does not end: they use the outputs that there are."""


WORKING = frozenset({R.ACQUIRED, R.RUNNING_OPEN, R.RUNNING_CLOSED, R.FORCE_COMPLETE})
"""States of requests with elements to pull and jobs to release."""


def is_working(state: str, step_type: str) -> bool:
    """Whether the work of a step of this type goes on: elements are pulled, and jobs are released."""
    return state in WORKING and (state != R.FORCE_COMPLETE or step_type in GO_ON_WHEN_FORCED)


def state_of_request(states: Iterable[ElementState]) -> RequestState | None:
    """The state of a request with elements in these states; None: it has no elements."""
    present = frozenset(states)
    if not present:
        return None
    for state, answer in (
        (E.CANCEL_REQUESTED, CANCELING),
        (E.ACQUIRED, R.RUNNING_OPEN),
        (E.RUNNING, R.RUNNING_CLOSED),
        (E.FAILED, R.FAILED),
    ):
        if present == {state}:
            return answer
    if present <= {E.AVAILABLE, E.NEGOTIATING, E.FAILED}:
        return R.ACQUIRED
    if present <= ENDED:
        return R.COMPLETED
    if present <= ENDED | {E.CANCEL_REQUESTED}:
        return CANCELING
    if present & {E.AVAILABLE, E.NEGOTIATING, E.ACQUIRED}:
        return R.RUNNING_OPEN
    return R.RUNNING_CLOSED


def next_states(
    current: RequestState, states: Iterable[ElementState], *, closed: bool, ended: bool, has_jobs: bool
) -> tuple[RequestState, ...]:
    """The states that a request goes through now, in order; empty: it stays.

    `closed`: no step gets further elements. `ended`: all steps have ended, with their output data sets. `has_jobs`:
    a job was made of one of its elements. A request that failed without one can be assigned again.
    """
    if current not in ROLLED:
        return ()
    target = state_of_request(states)
    if ended:
        if current is R.ABORTED:
            return (R.ABORTED_COMPLETED,)
        if current is R.ACQUIRED and target is R.FAILED and not has_jobs:
            return (R.FAILED,)
        return states_between(current, R.COMPLETED)
    if target is None or target is CANCELING or current in (R.ABORTED, R.FORCE_COMPLETE):
        return ()
    if target in (R.FAILED, R.COMPLETED):
        # Its elements have ended, and its steps have not: their outputs are being closed, or more elements come.
        target = R.RUNNING_CLOSED
    if target is R.RUNNING_CLOSED and not closed:
        target = R.RUNNING_OPEN
    return states_between(current, target)


def state_when_canceled(*, failed_before: bool) -> ElementJobState:
    """The state of a job that is not tried again, since its request is ended early.

    A job with a failed try keeps its error, and a resubmission makes it again.
    """
    return ElementJobState.EXHAUSTED if failed_before else ElementJobState.CANCELED


def state_of_job(
    outcome: JobState, *, canceling: bool, failed_before: bool = False
) -> ElementJobState | None:
    """The state of an element job after the end of its pool job; None: the retry rules decide.

    Somebody who kills or deletes a pool job does not want it again, so its piece is kept for a resubmission.
    """
    if outcome is JobState.DONE:
        return ElementJobState.DONE
    if canceling:
        return state_when_canceled(failed_before=failed_before or outcome is JobState.FAILED)
    return None if outcome is JobState.FAILED else ElementJobState.EXHAUSTED


@dataclass(frozen=True, slots=True)
class PartProgress:
    """Parts of a whole that are alike, in percent: the jobs of an element, or the elements of a step."""

    state: ElementState
    complete: int
    success: int
    number: int = 1
    """The number of such parts."""


@dataclass(frozen=True, slots=True)
class WholeProgress:
    """`state`: the whole's state after the report, which is never lower than before."""

    result: ElementState
    state: ElementState
    complete: int
    success: int

    @property
    def has_ended(self) -> bool:
        return self.result in ENDED


_ORDER = {state: place for place, state in enumerate(ElementState)}


def progress_of_whole(parts: Sequence[PartProgress], before: ElementState) -> WholeProgress:
    """The end policy: the state and the truncated mean percentages of a whole with these parts."""
    total = sum(part.number for part in parts)
    if not total:
        return WholeProgress(before, before, 0, 0)
    complete = sum(part.complete * part.number for part in parts) // total
    success = sum(part.success * part.number for part in parts) // total
    result = _result({part.state for part in parts if part.number})
    return WholeProgress(result, max(before, result, key=_ORDER.__getitem__), complete, success)


def state_of_element(
    state: ElementState, *, unfinished: int, done: int, failed: int, canceled: int
) -> ElementState | None:
    """The final state of an element that is split; None: it goes on. The counts are of its jobs."""
    if unfinished > 0 or state not in (E.RUNNING, E.CANCEL_REQUESTED):
        return None
    whole = progress_of_whole(
        (
            PartProgress(E.DONE, 100, 100, done),
            PartProgress(E.FAILED, 100, 0, failed),
            PartProgress(E.CANCELED, 0, 0, canceled),
        ),
        state,
    )
    if whole.state is E.CANCEL_REQUESTED:
        # A cancelled element never becomes Done, even if its jobs were faster.
        return E.CANCELED
    return whole.result if whole.has_ended else None


def _result(states: set[ElementState]) -> ElementState:
    if states <= ENDED:
        return next(state for state in (E.CANCELED, E.FAILED, E.DONE) if state in states)
    for state in (E.CANCEL_REQUESTED, E.RUNNING):
        if state in states:
            return state
    # Parts that wait, or are on their way to an agent, count as acquired: their whole has been taken in.
    return E.ACQUIRED
