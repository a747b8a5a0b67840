"""How many statements the messages of many pilots cost, and how the database carries the hot ones out."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.services.pilots.exchange import exchange_many, token_hash
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.submission.accept import ChunkedInsert
from pilotage.services.submission.job_creation import new_pace
from pilotage.store.engine.bulk_statements import BulkStatement
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import jobs, pilots, submissions
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import ExchangeRequest, OfferedJob, Reference
from tests.unit.services.bench import Bench, finished
from tests.writer_guard import as_writer

HEADS = "state = 'Waiting' AND queue_id = "
OTHERS = 20_000
"""Jobs and pilots that have nothing to do with it."""


class Watched:
    """The writer's connection, and what is asked of it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.asked: list[tuple[str | BulkStatement, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        self.asked.append((sql, values))
        return self.connection.execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Any]) -> Any:
        pytest.fail(f"a statement for each row: {sql}")

    def execute_later(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.asked.append((sql, values))
        self.connection.execute_later(sql, values)

    def execute_bulk(self, bulk: BulkStatement, rows: Sequence[Any]) -> int:
        self.asked.append((bulk, list(rows)))
        return int(self.connection.execute_bulk(bulk, rows))

    def execute_bulk_later(self, bulk: BulkStatement, rows: Sequence[Any]) -> None:
        self.asked.append((bulk, list(rows)))
        self.connection.execute_bulk_later(bulk, rows)

    def plan(self, statement: str | BulkStatement, values: Any) -> str:
        explain = "EXPLAIN QUERY PLAN " if self.connection.dialect == "sqlite" else "EXPLAIN "
        if isinstance(statement, BulkStatement):
            asked = replace(
                statement, sqlite=explain + statement.sqlite, postgresql=explain + statement.postgresql,
                returning="", copy="",
            )  # fmt: skip
            rows = self.connection.execute_bulk_returning(asked, values[:4])
        else:
            rows = self.connection.execute(explain + statement, values).fetchall()
        return "\n".join(str(row[-1]) for row in rows)


class Round:
    """Pilots that finish a job, confirm another and take a third, all in one transaction."""

    def __init__(self, bench: Bench, count: int) -> None:
        self.bench = bench
        self.watched: Any = Watched(bench.connection)
        old = bench.pool
        self.pool = bench.pool = bench.do(
            lambda tx: open_pool(
                Transaction(self.watched), old.policy, version=old.server.policy_version,
                incarnation=old.server.incarnation, rng=Random(1), secrets=secrets, home_owner=old.server.home_owner,
            )
        )  # fmt: skip
        self.pilots = [bench.pilot() for _ in range(count)]
        self.offered: list[list[OfferedJob]] = [[] for _ in range(count)]
        self.held: list[list[OfferedJob]] = [[] for _ in range(count)]

    def go(self) -> list[tuple[str | BulkStatement, Any]]:
        messages = []
        for place, pilot in enumerate(self.pilots):
            request = ExchangeRequest(
                incarnation=self.pool.server.incarnation,
                finishes=[finished(offer) for offer in self.held[place]],
                confirms=[Reference(offer.job, offer.epoch) for offer in self.offered[place]],
                take=pilot.asked(),
            )
            pilot.number += 1
            messages.append((token_hash(pilot.token), request))
        self.watched.asked.clear()
        self.bench.connection.begin()
        with as_writer():
            answers = exchange_many(self.pool, Transaction(self.watched), messages, self.bench.now)
        self.bench.connection.commit()
        self.held, self.offered = self.offered, []
        for answer in answers:
            assert not isinstance(answer, BaseException)
            assert {verdict.verdict for verdict in (*answer.finishes, *answer.confirms)} <= {"accepted"}
            self.offered.append(answer.offers)
        assert all(len(offers) == 1 for offers in self.offered)
        return list(self.watched.asked)


def texts(asked: list[tuple[str | BulkStatement, Any]]) -> Counter[str]:
    found = Counter(one if isinstance(one, str) else one.sqlite for one, _ in asked)
    for text in [text for text in found if HEADS in text]:
        # Read ahead, some at a time.
        del found[text]
    return found


def after_two_others(round_: Round) -> list[tuple[str | BulkStatement, Any]]:
    round_.go()
    round_.go()
    return round_.go()


def test_their_number_does_not_grow_with_that_of_the_messages(bench: Bench) -> None:
    bench.submit(count=200)
    first, second = (after_two_others(Round(bench, count)) for count in (2, 24))
    assert texts(first) == texts(second)
    assert texts(first).total() <= 12
    assert sum(isinstance(one, str) and HEADS in one for one, _ in second) <= 24 / 16 + 1


def test_most_statements_share_a_trip_to_the_database(bench: Bench) -> None:
    if bench.connection.dialect == "sqlite":
        pytest.skip("a file is no trip")
    bench.submit(count=200)
    round_ = Round(bench, 24)
    asked = after_two_others(round_)
    connection: Any = bench.connection
    before = connection.round_trips
    asked = round_.go()
    # The jobs that are spoken of (BEGIN goes along), the claims, each read of heads, and COMMIT with all that is left.
    read = sum(isinstance(one, str) and HEADS in one for one, _ in asked)
    assert connection.round_trips - before - read <= 3
    assert len(asked) + 2 - read >= 9


@pytest.mark.parametrize("fields", [{}, {"after_ok": ("1",)}, {"parallel": 1}])
def test_a_small_submission_is_stored_with_its_jobs_in_one_transaction(
    bench: Bench, fields: dict[str, Any]
) -> None:
    bench.submit()
    pace = new_pace()
    small, repeated = (ChunkedInsert.of(bench.prepared(2, key="k", **fields), pace) for _ in range(2))

    def fails(_: object) -> None:
        raise RuntimeError("this one only")

    def accepting(tx: Transaction) -> submissions.SubmissionRow | None:
        return small.step(bench.pool, tx, bench.now)

    before = getattr(bench.connection, "round_trips", 0)
    row = bench.do(accepting)
    trips = getattr(bench.connection, "round_trips", 0) - before
    assert small.has_jobs
    assert submissions.with_unmade_jobs(bench.connection) == []
    assert trips <= (9 if fields else 5)
    assert bench.do(lambda tx: repeated.step(bench.pool, tx, bench.now)) == row
    assert not repeated.has_jobs

    large = ChunkedInsert.of(bench.prepared(pace.size + 1), pace)
    stored = bench.do(lambda tx: large.step(bench.pool, tx, bench.now))
    assert not large.has_jobs
    assert stored is not None
    assert submissions.with_unmade_jobs(bench.connection) == [stored.id]

    small = ChunkedInsert.of(bench.prepared(2, **fields), pace)
    answer, _ = bench.together(accepting, fails)
    assert (answer.count, small.has_jobs) == (2, True)


def test_no_hot_statement_reads_a_whole_table(bench: Bench) -> None:
    [first, *_] = bench.submit(count=200)
    bench.do(lambda tx: crowd(bench, tx, first))
    hot = Round(bench, 4)
    asked = after_two_others(hot)
    hot.watched.asked.clear()
    queue = next(iter(hot.pool.queues.index.entries))
    for wanted in ([HeadsRequest(queue, 1, 0, 16)], [HeadsRequest(queue, 1, after, 16) for after in (0, 7)]):
        jobs.queue_heads(hot.watched, wanted)
    jobs.due_for_retry(hot.watched, bench.now, 100)
    count_rows.waiting_between(hot.watched, 100, 200)
    pilots.by_token(hot.watched, token_hash("unknown"))
    pilots.with_expired_lease(hot.watched, 0.0, "", 10)
    asked += hot.watched.asked
    checked = 0
    for statement, values in asked:
        plan = hot.watched.plan(statement, values)
        for table in ("jobs", "attempts", "events"):
            assert f"SCAN {table}" not in plan, plan
            assert f"Seq Scan on {table}" not in plan, plan
        checked += 1
    assert checked >= 8
    bench.do(leave)


def crowd(bench: Bench, tx: Transaction, first: int) -> None:
    """Many other jobs with their tries, and the statistics of them."""
    connection = tx.connection
    size = 200
    while size < OTHERS:
        connection.execute(
            "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted, ended)"
            " SELECT id + ?, submission_id, queue_id, 'Done', 1, submitted, 1.0 FROM jobs WHERE id < ?",
            (size, first + size),
        )
        size *= 2
    connection.execute(
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome)"
        " SELECT id, 99, 1, 1, 1.0, 1.0, 'applied' FROM jobs WHERE ended = 1.0"
    )
    connection.execute("ANALYZE")


def leave(tx: Transaction) -> None:
    tx.connection.execute("DELETE FROM attempts WHERE epoch = 99")
    tx.connection.execute("DELETE FROM jobs WHERE ended = 1.0")
