"""The start of a queue's wait is found without reading the queue."""

from __future__ import annotations

import sqlite3

import pytest

from pilotage.core.ids import QueueId
from pilotage.store.tables import wait_reasons
from tests.unit.services.bench import Bench


def since(bench: Bench) -> float | None:
    [entry] = [entry for entry in bench.pool.queues.index.entries.values() if entry.waiting]
    return wait_reasons.waiting_since(bench.connection, QueueId(entry.id), entry.first_waiting())


def test_the_first_job_of_all_priorities_counts(bench: Bench) -> None:
    first = bench.submit(2, user_priority=5)
    begin = bench.now
    bench.now += 10
    bench.submit(2, user_priority=1)
    assert since(bench) == begin
    bench.act("kill", first[0])
    assert since(bench) == begin
    bench.act("kill", first[1])
    assert since(bench) == begin + 10


def test_offered_and_returned_jobs_count_as_they_wait(bench: Bench) -> None:
    bench.submit()
    begin = bench.now
    bench.now += 10
    bench.submit(3)
    pilot = bench.pilot()
    offers = [pilot.hold() for _ in range(2)]
    waits = {bench.now - begin: begin + 10} if 1 in {offer.job for offer in offers} else {}
    assert since(bench) in {begin, *waits.values()}
    for offer in offers:
        pilot.release(offer)
    assert since(bench) == begin, "the oldest job waits again"


def test_no_row_is_read_in_vain(bench: Bench) -> None:
    if not isinstance(bench.connection, sqlite3.Connection):
        pytest.skip("only SQLite counts the steps of a statement")
    bench.submit(3000)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    bench.connection.set_progress_handler(count, 10)
    assert since(bench) == bench.now
    bench.connection.set_progress_handler(None, 0)
    assert steps < 30, "300 steps of SQLite's machine, for any number of jobs"
