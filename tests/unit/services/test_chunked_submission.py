"""Submissions whose rows come in chunks, large ones that come at once, and how fast jobs are made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.client import row_upload
from pilotage.core.errors import Conflict, InvalidInput, NotFound, Overloaded
from pilotage.core.jobs.description import InputFile, JobDescription
from pilotage.core.slice_pace import SlicePace
from pilotage.services.submission import chunked
from pilotage.services.submission import job_creation as making_module
from pilotage.services.submission.accept import ChunkedInsert, delete_staged
from pilotage.services.submission.chunked import (
    IDLE_TIMEOUT,
    accept_chunk,
    close,
    close_idle_submissions,
    idle_submissions,
    open_submission,
    owned_submission,
)
from pilotage.services.submission.job_creation import (
    AIM,
    FEWEST,
    ChunkRows,
    JobCreator,
    cut,
    encoded,
    new_pace,
)
from pilotage.store.tables import chunks, submissions
from pilotage.wire.submissions import MAX_CHUNK_BYTES, MAX_CHUNK_ROWS
from tests.unit.services.bench import POLICY, Bench


def at_most(jobs: int) -> SlicePace:
    """One that has a transaction make so many jobs."""
    pace = new_pace()
    pace.size = jobs
    return pace


def rows_of(*values: Any) -> ChunkRows:
    return ChunkRows(tuple(encoded([[value] for value in values])), len(values))


class Stream:
    """One open submission of alice, with one name."""

    def __init__(self, bench: Bench, key: str = "k", expected: int | None = None, **fields: Any) -> None:
        self.bench = bench
        prepared = bench.prepared(key=key, names=("x",), **fields)
        self.prepared = type(prepared)(**{**_facts(prepared), "expected": expected})
        self.id = self.open().id

    def open(self) -> submissions.SubmissionRow:
        bench = self.bench
        return bench.do(lambda tx: open_submission(bench.pool, tx, self.prepared, bench.now))

    def accept(
        self, number: int, *values: Any, owner: str = "alice", at_once: SlicePace | None = None
    ) -> chunks.ChunkRow:
        """`at_once`: what it allows to be made in the same transaction; otherwise nothing."""
        return self.bench.do(lambda tx: self.accepting(tx, number, values, owner, at_once or at_most(0)))

    def accepting(
        self, tx: Any, number: int, values: Sequence[Any], owner: str, pace: SlicePace
    ) -> chunks.ChunkRow:
        bench, given = self.bench, rows_of(*values)
        return accept_chunk(bench.pool, tx, owner, self.id, number, given, bench.now, pace)

    def send(self, number: int, *values: Any) -> chunks.ChunkRow:
        """Accepted and made."""
        chunk = self.accept(number, *values)
        self.make(JobCreator(self.id, number, rows=rows_of(*values)))
        return chunk

    def make(self, making: JobCreator) -> None:
        while not self.bench.do(lambda tx: making.step(self.bench.pool, tx)):
            pass

    def close(self, count: int) -> tuple[submissions.SubmissionRow, int]:
        return self.bench.do(lambda tx: close(tx, "alice", self.id, count, self.bench.now))

    def parameters(self) -> list[tuple[int, Any]]:
        sql = "SELECT id, parameters FROM jobs WHERE submission_id = ? ORDER BY id"
        found = self.bench.connection.execute(sql, (self.id,))
        return [(row[0], json.loads(row[1])[0]) for row in found]


def _facts(prepared: Any) -> dict[str, Any]:
    return {name: getattr(prepared, name) for name in type(prepared).__dataclass_fields__}


def test_rows_become_jobs_chunk_by_chunk_and_may_run_before_the_end(bench: Bench) -> None:
    stream = Stream(bench)
    stream.send(0, "a", "b")
    pilot = bench.pilot()
    assert [offer.payload.name for offer in pilot.take()] == [""]
    stream.send(1, "c")
    assert stream.parameters() == [(1, "a"), (2, "b"), (3, "c")]
    closed, last = stream.close(3)
    assert (closed.state, closed.count, last) == (submissions.CLOSED, 3, 3)
    bench.check()


def test_a_chunk_that_comes_again_makes_nothing_twice(bench: Bench) -> None:
    stream = Stream(bench)
    first = stream.send(0, "a", "b")
    again = stream.send(0, "a", "b")
    assert (again.first_job, again.count) == (first.first_job, first.count)
    assert len(stream.parameters()) == 2
    stream.send(1, "c")
    stream.close(3)
    assert stream.send(0, "a", "b").first_job == first.first_job
    assert len(stream.parameters()) == 3
    bench.check()


def test_a_chunk_with_other_rows_is_a_conflict(bench: Bench) -> None:
    stream = Stream(bench)
    stream.send(0, "a", "b")
    with pytest.raises(Conflict, match="chunk 0 of submission 1 was accepted before with other rows"):
        stream.accept(0, "a", "c")
    assert len(stream.parameters()) == 2


@pytest.mark.parametrize("number", [1, 5, -1])
def test_a_gap_is_a_conflict(bench: Bench, number: int) -> None:
    stream = Stream(bench)
    with pytest.raises(Conflict, match="expects chunk 0 next"):
        stream.accept(number, "a")
    stream.send(0, "a")
    with pytest.raises(Conflict, match="expects chunk 1 next"):
        stream.accept(2, "a")
    assert len(stream.parameters()) == 1


def test_nothing_comes_after_the_close(bench: Bench) -> None:
    stream = Stream(bench)
    stream.send(0, "a")
    with pytest.raises(Conflict, match="has 1 row, but the client sent 2"):
        stream.close(2)
    assert stream.close(1) == stream.close(1)
    with pytest.raises(Conflict, match="closed, with 1 job"):
        stream.accept(1, "b")
    empty = Stream(bench, key="empty")
    with pytest.raises(Conflict, match="no rows"):
        empty.close(0)


def test_the_key_opens_the_same_submission_again(bench: Bench) -> None:
    stream = Stream(bench)
    stream.send(0, "a")
    assert (stream.open().id, stream.open().count) == (stream.id, 1)
    assert Stream(bench, key="other").id != stream.id
    assert Stream(bench, owner="bob").id != stream.id
    with pytest.raises(Conflict, match="key k belongs to another submission"):
        Stream(bench, arguments=("other",))
    with pytest.raises(NotFound):
        stream.accept(1, "b", owner="bob")


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_an_accepted_chunk_is_whole_after_a_crash(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(making_module, "SIZE", 2)
    stream = Stream(bench)
    stream.send(0, 0, 1)
    stream.accept(1, 2, 3, 4, 5, 6)
    making = JobCreator(stream.id, 1)
    for _ in range(steps):
        bench.do(lambda tx: making.step(bench.pool, tx))
    bench.crash(lambda tx: making.step(bench.pool, tx))
    # As the server does it at its start; others may come before.
    later = bench.submit(2)
    for one in submissions.with_unmade_jobs(bench.connection):
        stream.make(JobCreator(one))
    assert [value for _, value in stream.parameters()] == list(range(7))
    assert not set(later) & {job for job, _ in stream.parameters()}
    stream.send(1, 2, 3, 4, 5, 6)
    stream.send(2, 7)
    stream.close(8)
    assert [value for _, value in stream.parameters()] == list(range(8))
    bench.check()


def test_a_chunk_that_is_small_enough_is_made_in_the_transaction_that_accepts_it(bench: Bench) -> None:
    stream = Stream(bench)
    chunk = stream.accept(0, "a", "b", at_once=at_most(2))
    assert (chunk.made, chunk.count) == (2, 2)
    assert bench.connection.execute("SELECT count(*) FROM pending_rows").fetchone()[0] == 0
    assert submissions.with_unmade_jobs(bench.connection) == []
    assert stream.accept(1, "c", "d", "e", at_once=at_most(2)).made == 0
    assert [value for _, value in stream.parameters()] == ["a", "b"]
    stream.make(JobCreator(stream.id))
    again = stream.accept(0, "a", "b", at_once=at_most(2))
    assert (again.made, again.first_job) == (2, chunk.first_job)
    bench.crash(lambda tx: stream.accepting(tx, 2, ["f"], "alice", at_most(2)))
    assert [value for _, value in stream.parameters()] == ["a", "b", "c", "d", "e"]
    assert stream.accept(2, "f", at_once=at_most(2)).made == 1
    assert stream.close(6)[0].count == 6
    bench.check()


def test_a_chunk_that_was_accepted_in_part_is_gone_on_with_however_fast_it_goes_now(bench: Bench) -> None:
    stream = Stream(bench)
    stream.accept(0, "a", "b", "c")
    assert stream.accept(0, "a", "b", "c", at_once=at_most(9)).made == 0
    stream.make(JobCreator(stream.id, 0, rows=rows_of("a", "b", "c")))
    assert [value for _, value in stream.parameters()] == ["a", "b", "c"]
    bench.check()


def test_two_clients_with_one_key_make_each_job_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making_module, "SIZE", 2)
    one, other = Stream(bench), Stream(bench)
    assert one.id == other.id
    one.accept(0, "a", "b", "c")
    other.accept(0, "a", "b", "c")
    makings = [JobCreator(one.id, 0), JobCreator(one.id, 0)]
    done = [False, False]
    while not all(done):
        for place, making in enumerate(makings):
            done[place] = bench.do(lambda tx, making=making: making.step(bench.pool, tx))
    assert [value for _, value in one.parameters()] == ["a", "b", "c"]
    bench.check()


def test_announced_jobs_have_ids_that_follow_one_another(bench: Bench) -> None:
    stream = Stream(bench, expected=5)
    stream.send(0, 0, 1)
    between = bench.submit(3)
    stream.send(1, 2, 3, 4)
    assert stream.parameters() == [(job, job - 1) for job in range(1, 6)]
    assert between == [6, 7, 8]
    with pytest.raises(Conflict, match="at most 5 jobs"):
        stream.accept(2, 5)
    assert stream.close(5)[1] == 5


def test_ids_of_unannounced_rows_may_have_gaps(bench: Bench) -> None:
    stream = Stream(bench)
    stream.send(0, 0, 1)
    between = bench.submit(3)
    stream.send(1, 2)
    assert [job for job, _ in stream.parameters()] == [1, 2, 6]
    assert between == [3, 4, 5]
    closed, last = stream.close(3)
    assert (closed.first_job, last) == (1, 6)
    bench.crash()
    assert bench.submit() == [7]


def test_numbers_have_the_width_of_what_was_announced(bench: Bench) -> None:
    stream = Stream(bench, expected=101, job_name="n%n")
    stream.send(0, *range(3))
    pilot = bench.pilot(processors=8)
    names = {offer.payload.name for offer in pilot.take(3, processors=8)}
    assert names == {"n000", "n001", "n002"}


def test_descriptions_that_depend_on_later_rows_are_refused() -> None:
    chunked.check_description(JobDescription("x", arguments=("%n",)), ("",), 10)
    chunked.check_description(JobDescription("x", arguments=("%s", "%(a)s", "100%")), ("", "a"), None)
    with pytest.raises(InvalidInput, match="%n needs the number of rows"):
        chunked.check_description(JobDescription("x", arguments=("%n",)), ("",), None)
    varying = InputFile("in", "copy", "data/%(a)s")
    with pytest.raises(InvalidInput, match="the input in differs"):
        chunked.check_description(JobDescription("x", input_sandbox=(varying,)), ("a",), 10)
    chunked.check_description(JobDescription("x", input_sandbox=(varying,)), ("a", "@0"), 10)


def test_the_limit_of_waiting_jobs_holds_across_chunks(tmp_path: Any) -> None:
    bench = Bench(tmp_path, POLICY.replace("[jobs]", "[jobs]\nmax_waiting_per_owner = 5"))
    stream = Stream(bench)
    stream.send(0, 1, 2, 3)
    with pytest.raises(Overloaded, match="more than 5 waiting jobs"):
        stream.accept(1, 4, 5, 6)
    stream.accept(1, 4, 5)
    # Accepted ones count before they are made, and for other ways of submitting.
    with pytest.raises(Overloaded):
        stream.accept(2, 6)
    with pytest.raises(Overloaded):
        bench.accept(bench.prepared())
    stream.make(JobCreator(stream.id))
    with pytest.raises(Overloaded):
        stream.accept(2, 6)
    bench.pilot().hold()
    stream.send(2, 6)
    assert len(bench.submit(5, owner="bob")) == 5
    bench.close()


def test_a_submission_that_is_left_open_is_closed_after_a_day(bench: Bench) -> None:
    stream, other = Stream(bench), Stream(bench, key="other")
    stream.send(0, "a")
    bench.now += IDLE_TIMEOUT - 10
    other.send(0, "b")
    bench.now += 9
    both = [stream.id, other.id]
    assert bench.do(lambda tx: idle_submissions(tx, bench.now)) == []
    assert bench.do(lambda tx: close_idle_submissions(bench.pool, tx, both, bench.now)) == 0
    bench.now += 2
    assert bench.do(lambda tx: idle_submissions(tx, bench.now)) == [stream.id]
    assert bench.do(lambda tx: close_idle_submissions(bench.pool, tx, both, bench.now)) == 1
    assert "submission 1 is closed with 1 job" in bench.kinds("left-open")[0]
    with pytest.raises(Conflict, match="closed, with 1 job"):
        stream.accept(1, "c")
    other.send(1, "c")
    assert len(stream.parameters()) == 1
    bench.check()


def test_a_queue_stays_while_a_submission_of_it_is_open(bench: Bench) -> None:
    stream = Stream(bench)
    submissions.mark_empty_queues(bench.connection, 1.0)
    assert submissions.delete_empty_queues(bench.connection, 2.0) == []
    stream.send(0, "a")


# --- large ones that come at once


def large(bench: Bench, count: int = 2 * MAX_CHUNK_ROWS + 1, **more: Any) -> ChunkedInsert:
    return ChunkedInsert.of(bench.prepared(count, **more))


def step(bench: Bench, accepting: ChunkedInsert) -> submissions.SubmissionRow | None:
    return bench.do(lambda tx: accepting.step(bench.pool, tx, bench.now))


def test_a_large_submission_is_accepted_with_its_last_chunk(bench: Bench) -> None:
    accepting = large(bench, key="k")
    assert step(bench, accepting) is None
    assert step(bench, accepting) is None
    assert submissions.with_unmade_jobs(bench.connection) == []
    with pytest.raises(Overloaded, match="being accepted now"):
        step(bench, large(bench, key="k"))
    between = bench.submit()
    submission = step(bench, accepting)
    assert submission is not None
    assert submission.count == 2 * MAX_CHUNK_ROWS + 1
    bench.make(submission)
    assert between == [submission.count + 1]
    sql = "SELECT count(*), min(id), max(id) FROM jobs WHERE submission_id = ?"
    row = bench.connection.execute(sql, (submission.id,)).fetchone()
    assert tuple(row) == (submission.count, 1, submission.count)
    assert step(bench, large(bench, key="k")) == submission
    with pytest.raises(Conflict, match="key k"):
        step(bench, large(bench, submission.count + 1, key="k"))


def test_other_values_of_the_same_number_are_another_submission(bench: Bench) -> None:
    bench.accept(bench.prepared(names=("x",), rows=[[1], [2]], key="k"))
    with pytest.raises(Conflict, match="key k"):
        bench.accept(bench.prepared(names=("x",), rows=[[1], [3]], key="k"))


def test_unaccepted_rows_are_gone_after_a_crash(bench: Bench) -> None:
    accepting = large(bench, key="k")
    step(bench, accepting)
    step(bench, accepting)
    bench.crash(lambda tx: accepting.step(bench.pool, tx, bench.now))
    [left] = submissions.staged(bench.connection)
    while not bench.do(lambda tx: delete_staged(tx, left)):
        pass
    assert submissions.staged(bench.connection) == []
    for table in ("submissions", "submission_chunks", "pending_rows", "jobs"):
        assert bench.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
    assert len(bench.submit(7, key="k")) == 7
    bench.check()


def test_a_step_of_accepting_whose_group_failed_is_carried_out_once(bench: Bench) -> None:
    accepting = large(bench, MAX_CHUNK_ROWS + 1)

    def fails(_: object) -> None:
        raise RuntimeError("this one only")

    answers: list[Any] = []
    while not answers or answers[-1] is None:
        answer, _ = bench.together(lambda tx: accepting.step(bench.pool, tx, bench.now), fails)
        answers.append(answer)
    assert [one is None for one in answers] == [True, False]
    assert answers[-1].count == MAX_CHUNK_ROWS + 1
    assert [chunk.number for chunk in chunks.page(bench.connection, answers[-1].id, 0, 9)] == [0, 1]


VALUES = st.lists(
    st.one_of(
        st.integers(-(2**63) + 1, 2**63 - 1), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
    )
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    min_size=2,
    max_size=2,
)


@given(st.lists(VALUES, min_size=1))
def test_client_and_server_cut_the_same_rows_alike(parameters: Sequence[Sequence[Any]]) -> None:
    theirs = [(chunk.count, chunk.body.decode()) for chunk in row_upload.split_into_chunks(parameters)]
    assert theirs == [(part.count, part.text) for part in cut(parameters, len(parameters))]


def test_client_and_server_cut_long_rows_alike() -> None:
    parameters = [["x" * (MAX_CHUNK_BYTES // 3), n] for n in range(7)] + [["ü" * n, n] for n in range(9000)]
    theirs = [(chunk.count, chunk.body.decode()) for chunk in row_upload.split_into_chunks(parameters)]  # type: ignore[arg-type]
    assert theirs == [(part.count, part.text) for part in cut(parameters, len(parameters))]
    assert len(theirs) > 2
    assert all(len(body.encode()) <= MAX_CHUNK_BYTES for _, body in theirs)


# --- the pace


def test_the_pace_follows_the_time_that_jobs_take() -> None:
    pace = new_pace(lambda: 0.0)
    for seconds_each, right in ((1e-6, 2000), (1e-5, 200), (1e-3, FEWEST), (4e-6, 500)):
        for _ in range(60):
            pace.took(pace.size, pace.size * seconds_each)
            assert pace.size <= MAX_CHUNK_ROWS
        assert 0.75 * right <= pace.size <= 1.05 * right, (seconds_each, pace.size)


def test_one_slow_transaction_halves_the_next_and_a_short_one_says_nothing() -> None:
    pace = new_pace(lambda: 0.0)
    pace.size = 1000
    pace.took(1000, 2 * AIM)
    assert pace.size == 500
    pace.took(3, 1e-9)
    assert pace.size == 500
    pace.took(3, 10 * AIM)
    assert pace.size == FEWEST


def test_the_submission_of_another_user_is_told_with_its_owners_rights() -> None:
    with pytest.raises(NotFound, match="root has no submission 15") as refused:
        owned_submission(None, 15, "root")
    assert "only the owner of a submission can run its jobs again" in refused.value.hint
