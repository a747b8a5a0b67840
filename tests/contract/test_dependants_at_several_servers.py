"""Jobs that depend on others at two servers: parents end at both at once, and no dependant is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import JobState
from pilotage.services.jobs.actions import act
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.submission.accept import PreparedSubmission, accept, identity_of
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.tables import history, instance, jobs
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import postgresql_store
from tests.deadlines import PATIENCE
from tests.unit.services.bench import Bench
from tests.unit.services.settling import advance
from tests.unit.services.workqueue.race import Race

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
    row = accept_only(one, number, **fields)
    create_jobs(one, row)
    return row


def accept_only(one: One, number: int = 1, **fields: tuple[str, ...] | int) -> SubmissionRow:
    """Its jobs are not created yet."""
    description = JobDescription(executable="/bin/true", **fields)  # type: ignore[arg-type]
    identity = identity_of(description, "alice", "physics", one.pool.policy)
    names, rows = (("",), [[place] for place in range(number)]) if number > 1 else ((), [])
    prepared = PreparedSubmission("alice", "physics", "", description, names, rows, (), identity, ())
    return one.writer.call(lambda tx: accept(one.pool, tx, prepared, 1.0))


def create_jobs(one: One, row: SubmissionRow) -> None:
    creator = JobCreator(row.id)
    while not one.writer.call(lambda tx: creator.step(one.pool, tx)):
        pass


def end(one: One, job: int, state: JobState = JobState.DONE) -> None:
    def request(tx: Transaction) -> None:
        moves = JobTransitions(one.pool, tx, 2.0, one.pool.event_batch(2.0, "test"))
        moves.load((job,))
        moves.end(moves.rows[job], "finished", state, "", None)
        moves.write()

    one.writer.call(request)


def reschedule(one: One, job: int) -> None:
    one.writer.call(
        lambda tx: act(one.pool, tx, "reschedule", [job], actor="test", reason="", now=3.0, dry_run=False)
    )


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


def state_of(one: One, job: int) -> str:
    return one.writer.call(lambda tx: jobs.by_ids(tx.connection, [job], for_update=False))[job].state


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


def test_a_parent_that_waits_again_while_its_submission_is_decided_on_is_waited_for(
    pair: tuple[One, One], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    parents = submit(a, 2)
    first, second = parents.first_job, parents.first_job + 1
    child = submit(a, after_ok=(f"s:{parents.id}",))
    settle(a)
    end(a, first, JobState.FAILED)
    settle(a)
    end(a, second)
    execute = PostgresqlConnection.execute
    left = [first]

    def hooked(self: PostgresqlConnection, sql: str, values: Sequence[Any] = (), /) -> Any:
        found = execute(self, sql, values)
        if self is a.connection and "c.made < c.count OR" in sql and left:
            # All jobs have ended, as server a has just seen.
            reschedule(b, left.pop())
        return found

    monkeypatch.setattr(PostgresqlConnection, "execute", hooked)
    settle(a)
    assert not left
    assert states(a)[first] == "Waiting"
    assert states(a)[child.first_job] != "Waiting"
    end(b, first)
    settle(b)
    assert states(a)[child.first_job] == "Waiting"


def test_parents_created_after_their_dependants_release_them(pair: tuple[One, One]) -> None:
    a, b = pair
    parents = accept_only(a, 3)
    child = submit(b, after_ok=(f"s:{parents.id}",))
    settle(b)
    create_jobs(a, parents)
    finish_all(a, b, parents, child)


def test_parents_that_are_just_being_created_release_their_dependants(pair: tuple[One, One]) -> None:
    a, b = pair
    parents = accept_only(a, 3)
    children: list[SubmissionRow] = []

    def create(tx: Transaction) -> None:
        assert JobCreator(parents.id).step(a.pool, tx)
        children.append(submit(b, after_ok=(f"s:{parents.id}",)))
        settle(b)

    a.writer.call(create)
    finish_all(a, b, parents, children[0])


def test_parents_created_while_their_dependants_are_submitted_release_them(pair: tuple[One, One]) -> None:
    a, b = pair
    parents = accept_only(a, 3)
    description = JobDescription(executable="/bin/true", after_ok=(f"s:{parents.id}",))
    identity = identity_of(description, "alice", "physics", b.pool.policy)
    prepared = PreparedSubmission("alice", "physics", "", description, (), [], (), identity, ())

    def submit_child(tx: Transaction) -> SubmissionRow:
        row = accept(b.pool, tx, prepared, 1.0)
        create_jobs(a, parents)
        settle(a)
        return row

    child = b.writer.call(submit_child)
    create_jobs(b, child)
    finish_all(a, b, parents, child)


def finish_all(a: One, b: One, parents: SubmissionRow, child: SubmissionRow) -> None:
    """The parents end one by one, and only then the child waits for a pilot."""
    settle(b)
    for job in range(parents.first_job, parents.first_job + parents.count):
        assert state_of(a, child.first_job) == "Blocked"
        end(a, job)
        settle(a)
    assert state_of(a, child.first_job) == "Waiting"


# --- each transaction of one server before each trip of the other's


@pytest.fixture
def race(pair: tuple[One, One]) -> Iterator[Race]:
    # Of a bench, a race uses what these servers have too.
    made = Race(*(cast(Bench, one) for one in pair))
    yield made
    made.end()


def submission_of_a_child(one: One, **fields: tuple[str, ...]) -> Callable[[Transaction], SubmissionRow]:
    description = JobDescription(executable="/bin/true", **fields)  # type: ignore[arg-type]
    identity = identity_of(description, "alice", "physics", one.pool.policy)
    prepared = PreparedSubmission("alice", "physics", "", description, (), [], (), identity, ())
    return lambda tx: accept(one.pool, tx, prepared, 1.0)


def return_of(one: One, job: int) -> Callable[[Transaction], Any]:
    return lambda tx: act(one.pool, tx, "reschedule", [job], actor="test", reason="", now=3.0, dry_run=False)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("on_submission", [False, True])
@pytest.mark.parametrize("returns_first", [False, True])
def test_a_parent_that_returns_while_its_dependant_is_submitted_is_waited_for(
    race: Race, pair: tuple[One, One], archived: bool, on_submission: bool, returns_first: bool
) -> None:
    a, b = pair
    for trip in count(1):
        parent = submit(a)
        end(a, parent.first_job, JobState.FAILED)
        if archived:
            assert a.do(lambda tx: history.archive(tx.connection, 3.0, 100))
        named = f"s:{parent.id}" if on_submission else str(parent.first_job)
        child: list[SubmissionRow] = []

        def submit_child(one: One, named: str, child: list[SubmissionRow]) -> Callable[[Transaction], None]:
            accepted = submission_of_a_child(one, after_ok=(named,))
            return lambda tx: child.append(accepted(tx))

        def come_back(one: One, job: int) -> Callable[[Transaction], None]:
            return lambda tx: return_of(one, job)(tx)

        if returns_first:
            reached = race.run_before_trip(
                trip, come_back(a, parent.first_job), submit_child(b, named, child)
            )
        else:
            reached = race.run_before_trip(
                trip, submit_child(a, named, child), come_back(b, parent.first_job)
            )
        settle(b)
        create_jobs(a, child[-1])
        finish_all(a, b, parent, child[-1])
        if not reached:
            break


def test_parents_that_are_marked_while_one_returns_are_waited_for(race: Race, pair: tuple[One, One]) -> None:
    """The other parents are marked at one server; the one that comes back is not unfinished there yet."""
    a, b = pair
    for trip in count(1):
        parents = submit(a, 2)
        end(a, parents.first_job, JobState.FAILED)
        child = submit(a, after_ok=(f"s:{parents.id}",))
        reached = race.run_before_trip(
            trip, lambda tx: advance(a.pool, tx, 7, 3.0), return_of(b, parents.first_job)
        )
        finish_all(a, b, parents, child)
        if not reached:
            break


@pytest.mark.parametrize("parents_first", [False, True])
def test_jobs_are_paired_with_jobs_that_are_just_being_created(
    race: Race, pair: tuple[One, One], parents_first: bool
) -> None:
    a, b = pair
    for trip in count(1):
        parents = accept_only(a, 3)
        children = accept_only(a, 3, after_each=(f"s:{parents.id}",))
        first, second = (parents, children) if parents_first else (children, parents)
        creators = JobCreator(first.id), JobCreator(second.id)
        reached = race.run_before_trip(
            trip,
            lambda tx, creators=creators: creators[0].step(a.pool, tx),
            lambda tx, creators=creators: creators[1].step(b.pool, tx),
        )
        settle(a)
        for place in range(3):
            assert state_of(a, children.first_job + place) == "Blocked"
            end(b, parents.first_job + place)
            settle(b)
            assert state_of(a, children.first_job + place) == "Waiting"
        if not reached:
            break
