"""Jobs that depend on others at two servers: parents end at both at once, and no dependant is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import JobState
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.submission.accept import PreparedSubmission, accept, identity_of
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.tables import instance, jobs
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import postgresql_store
from tests.deadlines import PATIENCE
from tests.unit.services.settling import advance

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[One, One]]:
    store = postgresql_store(tmp_path, migrated=True)
    connection = store.open_writer()
    instance.create(connection, "i", 1.0)
    instance.save_policy(connection, text=POLICY, now=1.0, by="alice", reason="")
    made = One(store, "a"), One(store, "b")
    yield made
    for one in made:
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def submit(one: One, number: int = 1, **fields: tuple[str, ...] | int) -> SubmissionRow:
    description = JobDescription(executable="/bin/true", **fields)  # type: ignore[arg-type]
    identity = identity_of(description, "alice", "physics", one.pool.policy)
    names, rows = (("",), [[place] for place in range(number)]) if number > 1 else ((), [])
    prepared = PreparedSubmission("alice", "physics", "", description, names, rows, (), identity, ())
    row = one.writer.call(lambda tx: accept(one.pool, tx, prepared, 1.0))
    creator = JobCreator(row.id)
    while not one.writer.call(lambda tx: creator.step(one.pool, tx)):
        pass
    return row


def end(one: One, job: int) -> None:
    """The job ends as Done."""

    def request(tx: Transaction) -> None:
        moves = JobTransitions(one.pool, tx, 2.0, one.pool.event_batch(2.0, "test"))
        moves.load((job,))
        moves.end(moves.rows[job], "finished", JobState.DONE, "", None)
        moves.write()

    one.writer.call(request)


def settle(one: One) -> None:
    while not one.writer.call(lambda tx: advance(one.pool, tx, 7, 3.0)):
        pass


def at_once(*works: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert not failed, failed


def states(one: One) -> dict[int, str]:
    ids = list(range(1, 100000))
    with_rows = one.writer.call(lambda tx: jobs.by_ids(tx.connection, ids, for_update=False))
    return {job: row.state for job, row in with_rows.items()}


def test_the_last_ends_at_two_servers_release_the_dependants(pair: tuple[One, One]) -> None:
    a, b = pair
    rounds = []
    for _ in range(10):
        parents = submit(a, 2)
        children = submit(b, 3, after_ok=(f"s:{parents.id}",))
        both = (str(parents.first_job), str(parents.first_job + 1))
        rounds.append((parents, children, submit(a, after_ok=both)))
    settle(a)
    for one in pair:
        one.follow()

    def finish(one: One, place: int) -> None:
        for parents, _, _ in rounds:
            end(one, parents.first_job + place)
            settle(one)

    at_once(lambda: finish(a, 0), lambda: finish(b, 1))
    settle(a)
    settle(b)
    found = states(a)
    for _, *dependent in rounds:
        for row in dependent:
            for job in range(row.first_job, row.first_job + row.count):
                assert found[job] == "Waiting"
    for one in pair:
        one.follow()
        assert one.recount() == 0


def test_parents_that_end_while_dependants_are_submitted_release_them(pair: tuple[One, One]) -> None:
    a, b = pair
    parents = submit(a, 40)
    ids = range(parents.first_job, parents.first_job + 40)
    children: list[SubmissionRow] = []
    numbers = count()

    def submit_children() -> None:
        for job in ids:
            children.append(submit(b, after_ok=(str(job),)))
            if next(numbers) % 8 == 0:
                children.append(submit(b, 2, after=(f"s:{parents.id}",)))
                children.append(submit(b, 40, after_each=(f"s:{parents.id}",)))

    def end_parents() -> None:
        for job in ids:
            end(a, job)
            settle(a)

    at_once(submit_children, end_parents)
    settle(b)
    settle(a)
    found = states(a)
    blocked = [job for job, state in found.items() if state != ("Done" if job in ids else "Waiting")]
    assert not blocked
