"""Chunks of parameter rows, and submissions that are open or not accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.states import JobState
from pilotage.store.tables import accepted_jobs, chunks, instance, submissions
from tests.contract.stores import fill


def test_a_chunk_is_unfinished_until_all_its_jobs_are_made(connection: Any) -> None:
    fill(connection)
    number = SubmissionId(1)
    chunk = chunks.by_number(connection, number, 0)
    assert chunk is not None
    assert chunk == chunks.last(connection, number) == chunks.first_incomplete(connection, number)
    assert json.loads(chunks.pending_rows(connection, number, 0)) == [[n] for n in range(10)]
    assert submissions.with_unmade_jobs(connection) == [number]
    assert [accepted_jobs.count(connection, owner, [JobState.HELD]) for owner in ("alice", "bob")] == [10, 0]
    chunks.save_made(connection, chunk, 7)
    assert accepted_jobs.count(connection, "alice", [JobState.HELD]) == 3
    chunks.save_made(connection, chunk, 10)
    assert submissions.with_unmade_jobs(connection) == []
    assert chunks.first_incomplete(connection, number) is None
    assert connection.execute("SELECT count(*) FROM pending_rows").fetchone()[0] == 0
    assert [one.number for one in chunks.page(connection, number, 0, 5)] == [0]
    assert chunks.page(connection, number, 1, 5) == []


def test_a_submission_that_was_not_accepted_can_be_forgotten(connection: Any) -> None:
    fill(connection)
    row = submissions.by_id(connection, SubmissionId(1))
    assert row is not None
    staged = replace(row, state=submissions.STAGED)
    assert submissions.save_progress(connection, row, staged)
    assert not submissions.save_progress(connection, row, staged)
    assert submissions.with_unmade_jobs(connection) == []
    assert submissions.staged(connection) == [row.id]
    assert chunks.delete_last(connection, row.id)
    assert not chunks.delete_last(connection, row.id)
    submissions.delete_staged(connection, row.id)
    assert submissions.by_id(connection, row.id) is None


def test_ids_that_were_promised_count_as_given(connection: Any) -> None:
    fill(connection)
    row = submissions.by_id(connection, SubmissionId(1))
    assert row is not None
    connection.execute("DELETE FROM submission_chunks")
    submissions.insert(connection, replace(row, id=SubmissionId(2), key="more", expected=500))
    assert submissions.last_ids(connection) == (2, 500)
    chunks.insert(connection, chunks.ChunkRow(SubmissionId(2), 0, "d", JobId(900), 5, 0, 1.0), "[]")
    assert submissions.last_ids(connection) == (2, 904)
    assert instance.highest_id(connection) >= 904


def test_submissions_left_open_are_found(connection: Any) -> None:
    fill(connection)
    row = submissions.by_id(connection, SubmissionId(1))
    assert row is not None
    for number, touched in ((2, 50.0), (3, 10.0), (4, 99.0)):
        more: dict[str, Any] = {"id": SubmissionId(number), "key": str(number), "state": submissions.OPEN}
        submissions.insert(connection, replace(row, touched=touched, **more))
    assert submissions.idle_open(connection, 60.0, 9) == [3, 2]
    assert submissions.idle_open(connection, 60.0, 1) == [3]
