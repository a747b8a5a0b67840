"""A queue that one of two servers deletes while the other one puts a job into it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.core.jobs.states import JobState
from pilotage.store.tables import instance, submissions
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import postgresql_store
from tests.contract.test_dependants_at_several_servers import (
    create_jobs,
    end,
    reschedule,
    submission_of_a_child,
    submit,
)
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.unit.services.workqueue.race import Race

pytestmark = pytest.mark.slow
LOCK_WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
QUEUELESS = "SELECT id FROM jobs WHERE state = 'Waiting' AND queue_id NOT IN (SELECT id FROM queues)"


@pytest.fixture
def due(tmp_path: Path) -> Iterator[tuple[One, One, int]]:
    """Two servers, and the only job: it has failed, and its queue is due for deletion."""
    store = postgresql_store(tmp_path, migrated=True)
    connection = store.open_writer()
    instance.create(connection, "i", 1.0)
    instance.save_policy(connection, text=POLICY, now=1.0, by="alice", reason="")
    a, b = One(store, "a"), One(store, "b")
    job = submit(a).first_job
    end(a, job, JobState.FAILED)
    a.writer.call(lambda tx: submissions.mark_empty_queues(tx.connection, 5.0))
    b.follow()
    yield a, b, job
    for one in (a, b):
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


@pytest.fixture
def race(due: tuple[One, One, int]) -> Iterator[Race]:
    a, b, _ = due
    made = Race(cast("Any", a), cast("Any", b))
    yield made
    made.end()


def delete(tx: Transaction) -> int:
    return len(submissions.delete_empty_queues(tx.connection, 10.0))


def while_open(one: One, first: Callable[[Transaction], object], second: Callable[[], object]) -> None:
    """`first` at this server; before it commits, `second` begins at the other one and comes to a lock."""
    thread = threading.Thread(target=second)

    def request(tx: Transaction) -> None:
        first(tx)
        thread.start()
        readers = one.store.readers.connection()
        until(
            lambda: not thread.is_alive() or readers.execute(LOCK_WAITS).fetchone(),
            what="the wait for a lock",
        )

    one.writer.call(request)
    thread.join(timeout=PATIENCE)
    assert not thread.is_alive()


def queueless(one: One) -> list[tuple[int]]:
    return one.writer.call(lambda tx: list(tx.connection.execute(QUEUELESS).fetchall()))


def waiting(one: One) -> int:
    sql = "SELECT count(*) FROM jobs WHERE state = 'Waiting'"
    return one.writer.call(lambda tx: int(tx.connection.execute(sql).fetchone()[0]))


def test_a_job_that_returns_while_its_queue_is_deleted_gets_another_one(due: tuple[One, One, int]) -> None:
    a, b, job = due
    while_open(b, delete, lambda: reschedule(a, job))
    assert waiting(a) == 1
    assert queueless(a) == []


def test_a_submission_while_its_queue_is_deleted_gets_another_one(due: tuple[One, One, int]) -> None:
    a, b, _ = due
    while_open(b, delete, lambda: submit(a))
    assert waiting(a) == 1
    assert queueless(a) == []


def test_a_queue_that_is_just_taken_into_use_is_not_deleted(due: tuple[One, One, int]) -> None:
    a, b, _ = due
    gone: list[int] = []

    def keep(tx: Transaction) -> None:
        [(queue, _)] = submissions.all_queues(tx.connection)
        assert submissions.keep_queue(tx.connection, queue)

    while_open(a, keep, lambda: gone.append(b.writer.call(delete)))
    assert gone == [0]
    assert a.writer.call(lambda tx: len(submissions.all_queues(tx.connection))) == 1


def test_two_servers_that_take_an_empty_queue_into_use_do_not_wait_for_each_other(
    race: Race, due: tuple[One, One, int]
) -> None:
    a, b, _ = due
    [(queue, identity)] = a.writer.call(lambda tx: submissions.all_queues(tx.connection))

    def take(tx: Transaction) -> None:
        assert submissions.get_or_insert_queue(tx.connection, identity, 20.0) == queue

    for trip in count(1):
        a.writer.call(lambda tx: submissions.mark_empty_queues(tx.connection, 5.0))
        reached = race.run_before_trip(trip, take, take)
        assert (a.writer.races, b.writer.races) == (0, 0), trip
        assert a.writer.call(delete) == 0
        if not reached:
            break


def test_a_submission_at_any_moment_of_the_deletion_has_its_queue(
    race: Race, due: tuple[One, One, int]
) -> None:
    a, b, _ = due
    for trip in count(1):
        a.writer.call(lambda tx: submissions.mark_empty_queues(tx.connection, 5.0))
        rows: list[SubmissionRow] = []
        accept = submission_of_a_child(b)
        reached = race.run_before_trip(trip, delete, lambda tx: rows.append(accept(tx)))  # noqa: B023
        create_jobs(b, rows[-1])
        assert waiting(a) == 1
        assert queueless(a) == []
        end(a, rows[-1].first_job)
        if not reached:
            assert trip > 2
            break
