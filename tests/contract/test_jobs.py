"""Jobs, queues, events, tries: what the services rely on."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.store.cluster.id_allocator import SequentialIds
from pilotage.store.tables import attempts, chunks, events, held_jobs, jobs, pilots, submissions
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables.events import EventBatch, last_event
from tests.contract.stores import IDENTITY, fill, offer


def test_a_submission_is_read_as_it_was_written(connection: Any) -> None:
    queue = fill(connection)
    found = submissions.by_id(connection, SubmissionId(1))
    assert found == submissions.by_key(connection, "alice", "key")
    assert (found.names, found.warnings, found.queue, found.count) == (("x",), ("w",), queue, 10)
    assert submissions.by_key(connection, "bob", "key") is None
    assert submissions.last_ids(connection) == (1, 10)


def test_heads_are_the_lowest_waiting_ids_of_one_priority(connection: Any) -> None:
    queue = fill(connection)

    def ids(*wanted: tuple[int, int, int, int]) -> list[list[int]]:
        found = jobs.queue_heads(connection, [HeadsRequest(QueueId(queue), *rest) for queue, *rest in wanted])
        return [[row[0] for row in rows] for rows in found]

    rows = [(job, 1, 0, 0, f"[{job}]") for job in (2, 4, 6)]
    assert jobs.queue_heads(connection, [HeadsRequest(queue, 1, 0, 3)]) == [rows]
    assert jobs.queue_heads(connection, [HeadsRequest(queue, 1, 0, 3)] * 2) == [rows, rows]
    each = [((queue, 1, 6, 9), [8, 10]), ((99, 2, 0, 9), []), ((queue, 2, 0, 9), [1, 3, 5, 7, 9])]
    for wanted, expected in each:
        assert ids(wanted) == [expected]
    assert ids(*(wanted for wanted, _ in each)) == [expected for _, expected in each]
    assert ids() == []
    offer(connection, 1, 1, 2.0, 4)
    assert ids((queue, 1, 0, 3)) == [[2, 6, 8]]
    assert count_rows.waiting_counts(connection) == {queue: {1: 4, 2: 5}}
    assert count_rows.waiting_counts_of(connection, queue) == {1: 4, 2: 5}


def test_a_job_is_offered_only_if_its_row_is_unchanged(connection: Any) -> None:
    fill(connection)
    offer(connection, 1, 1, 2.0, 1)
    late = [
        jobs.OfferedJobRow(PilotId(2), 1, 3.0, 8, JobId(n), before)
        for n, before in ((1, 0), (2, 0), (3, 99), (77, 0))
    ]
    assert jobs.save_offered(connection, late) == {1, 3, 77}
    assert jobs.by_ids(connection, [2])[2].pilot == 2
    first, third = jobs.by_ids(connection, [1])[1], jobs.by_ids(connection, [3])[3]
    assert (first.pilot, first.epoch, first.last_event) == (1, 1, 7)
    assert (third.pilot, third.epoch, third.state) == (None, 0, JobState.WAITING)


def test_a_take_is_rebuilt_of_what_is_still_offered(connection: Any) -> None:
    fill(connection)
    offer(connection, 1, 5, 2.0, 3, 1, 2)
    offer(connection, 1, 6, 2.0, 4)
    offer(connection, 2, 5, 2.0, 5)
    assert [row.id for row in jobs.of_take(connection, PilotId(1), 5)] == [1, 2, 3]
    jobs.save_held(connection, [jobs.HeldJob(JobState.RUNNING, 3.0, 8, JobId(2))])
    rows = jobs.of_take(connection, PilotId(1), 5)
    assert [(row.id, row.epoch, row.state, row.parameters) for row in rows] == [
        (1, 1, JobState.MATCHED, "[1]"),
        (3, 1, JobState.MATCHED, "[3]"),
    ]
    assert [row.id for row in jobs.of_pilots(connection, [PilotId(1)])] == [1, 2, 3, 4]
    assert jobs.having_jobs(connection, pilots.live(connection)) == {1, 2}
    jobs.save_freed(connection, [jobs.FreedJob(JobState.WAITING, None, 0, 0, "", 9, JobId(5))])
    assert jobs.having_jobs(connection, pilots.live(connection)) == {1}
    assert jobs.by_ids(connection, [2, 99]).keys() == {2}
    assert jobs.by_ids(connection, [2])[2].attempt == 1


def test_held_counts_are_by_queue_site_and_ce(connection: Any) -> None:
    queue = fill(connection)
    offer(connection, 1, 1, 2.0, 1, 2, 3)
    offer(connection, 2, 1, 2.0, 4)
    jobs.save_held(connection, [jobs.HeldJob(JobState.RUNNING, 3.0, 8, JobId(2))])
    assert {row.id for row in held_jobs.of_live_pilots(connection)} == {1, 2, 3, 4}
    assert held_jobs.stalled_pilots(connection) == []
    ended = jobs.EndedJob(JobState.DONE, 0, 0, "", 0, 4.0, 9, JobId(3))
    jobs.save_ended(connection, [ended])
    assert sorted(count_rows.held_counts(connection)) == [
        (queue, "here", "ce here", 2),
        (queue, "there", "ce there", 1),
    ]


def test_due_retries_and_lapsed_offers_are_found(connection: Any) -> None:
    fill(connection)
    later = [
        jobs.FreedJob(JobState.RESCHEDULED, at, 1, 0, "why", 8, JobId(job))
        for job, at in ((1, 10.0), (2, 20.0))
    ]
    jobs.save_freed(connection, later)
    assert [row.id for row in jobs.due_for_retry(connection, 9.9, 9)] == []
    assert [row.id for row in jobs.due_for_retry(connection, 10.0, 9)] == [1]
    assert {row.id for row in jobs.due_for_retry(connection, 50.0, 9)} == {1, 2}
    assert len(jobs.due_for_retry(connection, 50.0, 1)) == 1
    jobs.save_freed(connection, [jobs.FreedJob(JobState.WAITING, None, 1, 0, "", 9, JobId(1))])
    assert [row.id for row in jobs.due_for_retry(connection, 50.0, 9)] == [2]
    offer(connection, 1, 1, 100.0, 3)
    offer(connection, 1, 2, 101.0, 4)
    assert jobs.offer_times(connection, [3, 4]) == {3: 100.0, 4: 101.0}
    jobs.save_held(connection, [jobs.HeldJob(JobState.RUNNING, 102.0, 8, JobId(3))])
    held_jobs.extend_offers(connection, 5.0)
    assert jobs.offer_times(connection, [3, 4]) == {3: 102.0, 4: 106.0}
    assert pilots.unconfirmed_since(connection) == [(1, 101.0)]


def test_a_jobs_history_is_a_chain_through_shared_events(connection: Any) -> None:
    fill(connection)
    ids = SequentialIds(last_event(connection))
    made = events.record(
        connection, ids, at=1.0, kind="submitted", actor="user:a", detail="", jobs="[1,10]", new="Waiting"
    )
    last = dict.fromkeys(range(1, 4), made)
    for at, kind, new, whose in (
        (2.0, "offered", "Matched", (1, 2)),
        (3.0, "killed", "Killed", (2, 3)),
        (4.0, "x", "y", (1,)),
    ):
        batch = EventBatch(ids, at, "server")
        for job in whose:
            last[job] = batch.add(kind, "old", new, JobId(job), 1, 5, last[job], "why")
        batch.write(connection)
        batch.write(connection)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (4,)
    kinds = {job: [event.kind for event in events.history(connection, JobId(job), last[job])] for job in last}
    assert kinds == {
        1: ["submitted", "offered", "x"],
        2: ["submitted", "offered", "killed"],
        3: ["submitted", "killed"],
    }
    event = events.history(connection, JobId(1), last[1])[-1]
    assert (event.at, event.actor, event.old, event.new, event.epoch, event.detail) == (
        4.0,
        "server",
        "old",
        "y",
        5,
        "why",
    )
    assert events.history(connection, JobId(1), 0) == []
    # Ids go on after a restart.
    assert last_event(connection) == 4


def test_alike_moves_with_different_details_are_events_of_their_own(connection: Any) -> None:
    batch = EventBatch(SequentialIds(last_event(connection)), 1.0, "server")
    same = {batch.add("k", "a", "b", JobId(job), 1, 1, 0, "one") for job in range(5)}
    assert len(same) == 1
    assert batch.add("k", "a", "b", JobId(5), 1, 1, 0, "two") not in same


def test_tries_and_results(connection: Any) -> None:
    attempts.save_started(
        connection,
        [attempts.StartedAttempt(JobId(1), 2, 1, PilotId(7), 3.0, 4, "alice", "physics", "here", 1.5)],
    )
    assert attempts.pilot_of_attempt(connection, JobId(1), 2) == 7
    assert attempts.pilot_of_attempt(connection, JobId(1), 1) is None
    assert attempts.tries_of_pilot(connection, PilotId(7), {1, 2, 3}) >= {(1, 2)}
    assert attempts.tries_of_pilot(connection, PilotId(8), {1, 2, 3}) == set()
    closed = attempts.FinishedAttempt(9.0, "applied", 0, "", "m", 5.0, 4.0, 30, JobId(1), 2)
    attempts.save_finished(connection, [closed])
    attempts.save_interrupted(connection, [attempts.InterruptedAttempt(9.0, "killed", JobId(1), 99)])
    assert connection.execute("SELECT outcome, ended, max_rss FROM attempts").fetchall() == [
        ("applied", 9.0, 30)
    ]
    result = attempts.Result(JobId(1), 2, b"out\x00", None, [("f", 5)], ["*.x"], [("a\\xff", "no")])
    attempts.save_results(connection, [result, result])
    assert attempts.result_of(connection, JobId(1), 2) == result
    assert attempts.result_of(connection, JobId(1), 1) is None
    attempts.delete_results(connection, [JobId(1)])
    assert attempts.result_of(connection, JobId(1), 2) is None


@pytest.mark.parametrize(
    ("wall", "cpu", "stored"),
    [
        (5.0, 4.0, (5.0, 4.0)),
        (1e11, 4.0, (6.0 * 1.05 + 60.0, 4.0)),
        (1e308, 1e308, (6.0 * 1.05 + 60.0, (6.0 * 1.05 + 60.0) * 4096)),
    ],
)
def test_no_more_time_is_accounted_than_has_passed_since_the_confirm(
    connection: Any, wall: float, cpu: float, stored: tuple[float, float]
) -> None:
    begun = attempts.StartedAttempt(JobId(1), 2, 1, PilotId(7), 3.0, 4, "alice", "physics", "here", 1.5)
    attempts.save_started(connection, [begun])
    closed = attempts.FinishedAttempt(9.0, "applied", 0, "", "m", wall, cpu, 30, JobId(1), 2)
    attempts.save_finished(connection, [closed])
    assert tuple(connection.execute("SELECT wall, cpu FROM attempts").fetchone()) == pytest.approx(stored)


def test_a_queues_row_stays_while_jobs_may_come_back_and_its_id_is_never_given_twice(connection: Any) -> None:
    queue = fill(connection)
    assert (
        submissions.find_queue(connection, IDENTITY)
        == queue
        == submissions.get_or_insert_queue(connection, IDENTITY, 2.0)
    )
    assert submissions.all_queues(connection) == [(queue, IDENTITY)]

    def a_day_later(at: float) -> list[QueueId]:
        submissions.mark_empty_queues(connection, at)
        return submissions.delete_empty_queues(connection, at + 1)

    # Jobs of its submission are still to be made.
    connection.execute("UPDATE jobs SET state = 'Done'")
    assert a_day_later(10.0) == []
    chunk = chunks.by_number(connection, SubmissionId(1), 0)
    assert chunk is not None
    chunks.save_made(connection, chunk, 10)
    for state in ("Waiting", "Matched", "Running", "Stalled", "Completing", "Rescheduled"):
        connection.execute("UPDATE jobs SET state = ? WHERE id = 3", (state,))
        assert a_day_later(10.0) == [], state
    connection.execute("UPDATE jobs SET state = 'Failed'")
    submissions.mark_empty_queues(connection, 10.0)
    # A job was rescheduled by hand and runs, though the row is marked.
    connection.execute("UPDATE jobs SET state = 'Running' WHERE id = 3")
    assert submissions.delete_empty_queues(connection, 11.0) == []
    connection.execute("UPDATE jobs SET state = 'Failed' WHERE id = 3")
    assert submissions.delete_empty_queues(connection, 11.0) == []
    assert a_day_later(20.0) == [queue]
    assert submissions.find_queue(connection, IDENTITY) is None
    assert submissions.insert_queue(connection, QueueIdentity("bob", "other"), 30.0) > queue
