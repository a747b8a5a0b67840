"""Submissions in several transactions, at two servers at the same time."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from pilotage.core.errors import Conflict, Overloaded
from pilotage.core.slice_pace import SlicePace
from pilotage.services.submission import chunked
from pilotage.services.submission.accept import ChunkedInsert, delete_staged
from pilotage.services.submission.job_creation import ChunkRows, cut
from pilotage.store.tables import submissions
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import MAX_CHUNK_ROWS
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.race import Race, Servers

pytestmark = pytest.mark.slow
ROWS = 2 * MAX_CHUNK_ROWS + 1


def stored(bench: Bench) -> list[tuple[str, int, int]]:
    """(state, its count, the rows of its chunks) of each submission."""
    sql = (
        "SELECT s.state, s.count, (SELECT coalesce(sum(c.count), 0)::bigint FROM submission_chunks c"
        " WHERE c.submission_id = s.id) FROM submissions s ORDER BY s.id"
    )
    return [tuple(row) for row in bench.do(lambda tx: tx.connection.execute(sql).fetchall())]


def test_a_submission_that_the_other_server_deletes_is_not_accepted(race: Race, servers: Servers) -> None:
    """The other server deletes a part of it before each trip of its last chunk to the database."""
    first, second = servers.first.bench, servers.second.bench
    for trip in count(1):
        first.do(lambda tx: tx.connection.execute("TRUNCATE submissions, submission_chunks, pending_rows"))
        insert = ChunkedInsert.of(first.prepared(ROWS))
        for _ in range(2):
            assert first.do(lambda tx: insert.step(first.pool, tx, first.now)) is None  # noqa: B023
        left = insert.submission
        assert left is not None
        accepted: list[submissions.SubmissionRow | None] = []

        def step(tx: Transaction) -> None:
            accepted.append(insert.step(first.pool, tx, first.now))  # noqa: B023

        def delete(tx: Transaction) -> bool:
            return delete_staged(tx, left.id)  # noqa: B023

        try:
            more = race.run_before_trip(trip, step, delete)
        except Overloaded:
            assert stored(first) == [("staged", MAX_CHUNK_ROWS, MAX_CHUNK_ROWS)]
            while not second.do(delete):
                pass
            assert stored(first) == []
            continue
        assert accepted[-1] is not None
        assert stored(first) == [("closed", ROWS, ROWS)]
        if not more:
            assert trip > 1
            return


def test_a_submission_that_goes_on_is_not_deleted(servers: Servers) -> None:
    first, second = servers.first.bench, servers.second.bench
    insert = ChunkedInsert.of(first.prepared(ROWS))
    first.do(lambda tx: insert.step(first.pool, tx, first.now))
    [left] = second.do(lambda tx: submissions.staged(tx.connection, first.now + 1.0))
    first.do(lambda tx: insert.step(first.pool, tx, first.now + 5.0))
    assert second.do(lambda tx: delete_staged(tx, left, first.now + 1.0))
    assert first.do(lambda tx: insert.step(first.pool, tx, first.now + 6.0)) is not None
    assert second.do(lambda tx: delete_staged(tx, left))
    assert stored(first) == [("closed", ROWS, ROWS)]


def test_rows_of_a_chunk_are_not_lost_when_another_server_closes_the_submission(
    race: Race, servers: Servers
) -> None:
    first = servers.first.bench
    pace = SlicePace(1.0, None)
    for trip in range(1, 7):
        prepared = first.prepared(3, key=f"k{trip}")
        opened = first.do(lambda tx: chunked.open_submission(first.pool, tx, prepared, first.now))  # noqa: B023
        parts = list(cut([[1]], 1))

        def add(number: int) -> ChunkRow:
            return first.do(lambda tx: chunk(first, tx, number))

        def chunk(bench: Bench, tx: Transaction, number: int) -> ChunkRow:
            part: ChunkRows = parts[0]  # noqa: B023
            return chunked.accept_chunk(
                bench.pool, tx, "alice", opened.id, number, part, bench.now, pace  # noqa: B023
            )  # fmt: skip

        add(0)
        with suppress(Conflict):
            race.run_before_trip(
                trip,
                lambda tx: chunked.close(tx, "alice", opened.id, 1, first.now),  # noqa: B023
                lambda tx: chunk(servers.second.bench, tx, 1),
            )
        state, number, rows = stored(first)[-1]
        assert number == rows, trip
        assert (state, rows) in [("closed", 1), ("open", 2)], trip
