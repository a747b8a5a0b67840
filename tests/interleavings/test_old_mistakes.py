"""Mistakes that two servers once made, put back: the interleaving of pairs finds them."""

from __future__ import annotations

import pytest

from pilotage.core.ids import QueueId
from pilotage.core.workqueue.states import ElementState
from pilotage.services.jobs import actions
from pilotage.services.jobs.queue_of_job import find_queue
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_jobs, element_progress, submissions
from pilotage.store.tables.element_progress import StepProgress
from pilotage.store.tables.jobs import JobRow
from tests.interleavings.pairs import Finding, Pairs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


def look_by_look(connection: Connection, request: int, step: int) -> StepProgress:
    """The progress of a step, by one statement for each state."""

    def is_there(table: str, state: str) -> bool:
        sql = f"SELECT 1 FROM {table} WHERE request_id = ? AND step = ? AND state = ? LIMIT 1"
        return connection.execute(sql, (request, step, state)).fetchone() is not None

    states = frozenset(state for state in ElementState if is_there("elements", str(state)))
    return StepProgress(
        states, any(is_there("element_jobs", str(state)) for state in element_jobs.UNFINISHED)
    )


def first_finding(pairs: Pairs, first: str, second: str) -> Finding:
    """The wrong state of a pair that comes with the last trips of the first one."""
    for trip in reversed(pairs.trips(first, second)):
        for finding in pairs.check(first, second, [trip]):
            return finding
    raise AssertionError(f"no wrong state of {first} and {second} was found")


def test_looks_at_one_state_after_the_other(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them an agent gives its element back: the request ends without its events."""
    monkeypatch.setattr(element_progress, "of_step", look_by_look)
    finding = first_finding(pairs, "duty roll-up", "an agent gives back")
    assert any(
        "elements under way of a completed request" in complaint.lower() for complaint in finding.complaints
    )


def find_queue_without_a_lock(moves: JobTransitions, job: JobRow) -> QueueId:
    """The queue of a job that returns, whatever has become of it since it was read."""
    connection = moves.tx.connection
    if submissions.queue_identity(connection, job.queue) is None:
        return find_queue(moves, job)
    sql = "UPDATE queues SET empty_since = NULL WHERE id = ? AND empty_since IS NOT NULL"
    connection.execute(sql, (job.queue,))
    return job.queue


def test_returns_to_a_queue_that_is_being_deleted(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "find_queue", find_queue_without_a_lock)
    finding = first_finding(pairs, "reschedule", "duty queues")
    assert any(
        "unfinished jobs whose task queue is gone" in complaint.lower() for complaint in finding.complaints
    )
