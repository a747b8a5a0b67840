"""Data sets, their locations and the requests that use them, changed by two servers at the same time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.requests.states import RequestState
from pilotage.services.catalogue import following, locations, removal
from pilotage.services.catalogue.locations import ReplicaChange
from pilotage.services.requests import changes, submission
from pilotage.services.requests.changes import SiteLists
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.intake import take_slice
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.services.workqueue.release import ReleaseRun
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_locations, location_sets, replicas
from pilotage.store.tables.replicas import ReplicaRow
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.test_resubmissions import FILES, ChainDesk
from tests.unit.services.workqueue.queue_bench import QueueBench
from tests.unit.services.workqueue.race import Race, Servers
from tests.unit.services.workqueue.test_races import change_of, post_of

pytestmark = pytest.mark.slow
R = RequestState
Request = Callable[[Transaction], Any]
ALICE = Viewer("alice")
A, B, C = (Replica(site, "/data") for site in "ABC")


def intake_of(queue: QueueBench, request: int) -> Request:
    return lambda tx: take_slice(queue.work_queue, tx, request, queue.now, 1000)


def removal_of(queue: QueueBench, name: str = "/data") -> Request:
    return lambda tx: removal.remove(tx, name, changer=ALICE, now=queue.now)


def submission_of(queue: QueueBench, prepared: Any) -> Request:
    return lambda tx: submission.submit(queue.bench.pool.policy, tx, prepared, queue.now)


def change_of_replicas(queue: QueueBench, blocks: list[int], **change: Any) -> Request:
    return lambda tx: locations.change_replicas(tx, blocks, ReplicaChange(**change), queue.now)


def follow(tx: Transaction, now: float) -> None:
    """One cycle of the duty of locations."""
    connection = tx.connection
    moved = replicas.moved_blocks(connection, 100)
    elements = locations.elements_of_moved(connection, moved)
    locations.move_elements(tx, elements, now)
    locations.move_jobs(tx, element_locations.stale_jobs(connection, [element.id for element in elements]))
    locations.settle(tx, moved)


def place(queue: QueueBench, *places: Replica) -> list[int]:
    """Let all blocks have these replicas, and the location of them."""
    blocks = [row[0] for row in queue.sql("SELECT id FROM blocks ORDER BY id")]

    def store(tx: Transaction) -> None:
        replicas.delete(tx.connection, blocks)
        replicas.save(
            tx.connection, [ReplicaRow(block, *one, queue.now) for block in blocks for one in places]
        )
        replicas.locate(tx.connection, blocks, queue.now)
        tx.connection.execute("DELETE FROM moved_blocks")

    queue.bench.do(store)
    return blocks


def sites(connection: Connection, number: int) -> list[str] | None:
    """The sites of a location set; None: not known."""
    known = location_sets.sites_of(connection, [number])
    return sorted(known[number]) if number in known else None


def sites_of(queue: QueueBench, table: str) -> set[str]:
    """The locations of all rows of a table, each as its sites."""
    numbers = [row[0] for row in queue.sql(f"SELECT DISTINCT location_set FROM {table}")]
    return {str(queue.bench.do(lambda tx, n=n: sites(tx.connection, n))) for n in numbers}


# --- data sets that requests use


@pytest.mark.parametrize("close_first", [True, False])
def test_a_data_set_that_is_closed_at_this_instant_is_opened_for_its_next_writer(
    race: Race, servers: Servers, close_first: bool
) -> None:
    """Two resubmissions write the result of one request. The first of them ends while the other one is taken in."""
    chain = ChainDesk(servers.first)
    one, other = servers
    row, _ = chain.failed_request(3, **FILES)
    child = chain.resubmit(row.id).row.id
    jobs = chain.make_jobs(child)
    chain.end(child, jobs[:1], aborted=jobs[1:2])
    ending, beginning = chain.resubmit(child).row.id, chain.resubmit(row.id).row.id
    chain.make_jobs(ending)
    one.run("UPDATE element_jobs SET state = 'done' WHERE request_id = ?", ending)
    one.run("UPDATE elements SET state = 'Done' WHERE request_id = ?", ending)
    end = [lambda tx, queue=queue: roll_up.advance(tx, ending, queue.now) for queue in servers]
    begin = [intake_of(queue, beginning) for queue in servers]
    race.run(end[0], begin[1]) if close_first else race.run(begin[0], end[1])
    assert one.request_row(ending).state is R.COMPLETED
    assert other.request_row(beginning).state is R.ACQUIRED
    [[is_open]] = one.sql("SELECT open FROM datasets WHERE request_id = ?", row.id)
    assert is_open


@pytest.mark.parametrize("fields", [{}, {"input": None, "events": 120, "pileup": "/data"}])
def test_a_data_set_is_removed_or_used_but_not_both(
    race: Race, servers: Servers, fields: dict[str, Any]
) -> None:
    chain = ChainDesk(servers.first)
    one, other = servers
    if fields:
        fields = {**fields, "splitting": {"algorithm": "EventBased", "events_per_job": 10}}
    first, late = chain.prepared(**FILES, **fields), chain.prepared(**FILES, **fields)
    row, refused = race.run(submission_of(one, first), removal_of(other))
    assert isinstance(refused, Conflict)
    assert f"used by request {row.id}" in refused.message
    chain.do(changes.abort, row)
    one.run("UPDATE requests SET state = 'aborted-completed'")
    _, refused = race.run(removal_of(one), submission_of(other, late))
    assert isinstance(refused, InvalidInput)
    assert refused.message == "a data set of the request was removed: /data"
    assert len(one.sql("SELECT id FROM requests")) == 1


def test_a_failed_request_is_assigned_again_only_with_its_data_sets(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    one, other = servers
    rows = [chain.submit(**FILES) for _ in range(2)]
    one.run("UPDATE requests SET state = 'failed'")
    assign = [change_of(changes.assign, queue, row.id, "home", SiteLists(), queue.bench.pool.policy)
              for queue, row in zip(servers, rows, strict=True)]  # fmt: skip
    again, refused = race.run(assign[0], removal_of(other))
    assert again.state is R.ASSIGNED
    assert isinstance(refused, Conflict)
    one.run("UPDATE requests SET state = 'failed'")
    _, refused = race.run(removal_of(one), assign[1])
    assert isinstance(refused, InvalidInput)
    assert "was removed: /data" in refused.message
    assert chain.row(rows[1]).state is R.FAILED


def test_no_block_is_left_out_that_comes_while_a_step_takes_its_input(race: Race, servers: Servers) -> None:
    """The last reading of a catalogue ends between two looks of the intake."""
    chain = ChainDesk(servers.first)
    one, other = servers
    for trip in count(1):
        dataset = one.dataset(f"/copied{trip}", is_open=True)
        one.block(dataset, "early")
        one.run("INSERT INTO followed_datasets (dataset_id, asked, read) VALUES (?, 1.0, 1.0)", dataset)
        row = chain.submit(merge=None, input=f"/copied{trip}")

        def last_reading(tx: Transaction) -> None:
            entry = BlockEntry("late", (FileEntry("late/0", 1, 1),), (A,))
            following.store_files(tx, dataset, entry, complete=True, now=other.now)  # noqa: B023
            following.finish_reading(tx, dataset, other.now, "", closed=False)  # noqa: B023

        reached = race.run_before_trip(trip, intake_of(one, row.id), last_reading)
        one.intake(row.id)
        assert len(one.elements_of(row.id)) == 2, trip
        if not reached:
            break


# --- locations


def test_two_changes_of_replicas_give_the_location_of_all_replicas(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    one, other = servers
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (dict(add=(C,)), dict(remove=("A",))),
        (dict(remove=("A",)), dict(add=(C,))),
        (dict(forget=True), dict(add=(C,))),
        (dict(add=(C,)), dict(forget=True)),
    ]
    for mine, theirs in pairs:
        for trip in count(1):
            blocks = place(chain.queue, A, B)
            change, beside = (
                change_of_replicas(queue, blocks, **facts) for queue, facts in ((one, mine), (other, theirs))
            )
            reached = race.run_before_trip(trip, change, beside)
            stored = one.sql("SELECT DISTINCT site FROM replicas ORDER BY site")
            expected = [row[0] for row in stored] or None
            assert sites_of(one, "blocks") == {str(expected)}, (mine, theirs, trip)
            if not reached:
                break


def test_a_catalogue_and_a_person_change_the_replicas_of_one_block(race: Race, servers: Servers) -> None:
    chain = ChainDesk(servers.first)
    one, other = servers
    for trip in count(1):
        blocks = place(chain.queue, A, B)
        known = dict.fromkeys(blocks, (A, C))
        reached = race.run_before_trip(
            trip,
            lambda tx: locations.set_replicas(tx, known, one.now),  # noqa: B023
            change_of_replicas(other, blocks, remove=("A",)),
        )
        stored = one.sql("SELECT DISTINCT site FROM replicas ORDER BY site")
        assert sites_of(one, "blocks") == {str([row[0] for row in stored])}
        if not reached:
            break


def test_new_elements_and_jobs_of_a_block_that_moves_have_its_location(race: Race, servers: Servers) -> None:
    """The duty of locations looks once after the move, and forgets it. Nothing of the old location comes later."""
    chain = ChainDesk(servers.first)
    one, other = servers
    blocks = place(one, A, B)

    def moved(tx: Transaction) -> None:
        locations.change_replicas(tx, blocks, ReplicaChange(remove=("A",)), other.now)
        follow(tx, other.now)

    for trip in count(1):
        place(one, A, B)
        row = chain.submit(**FILES)
        reached = race.run_before_trip(trip, intake_of(one, row.id), moved)
        assert sites_of(one, "elements") == {"['B']"}, trip
        one.run("DELETE FROM elements")
        if not reached:
            break
    for trip in count(1):
        place(one, A, B)
        row = chain.submit(**FILES)
        one.intake(row.id)
        chain.agent.sync()
        chain.agent.sync(0)
        number = min(chain.agent.held)
        reached = race.run_before_trip(trip, post_of(one, chain.agent, number), moved)
        assert sites_of(one, "elements") == {"['B']"}, trip
        assert sites_of(one, "element_jobs") == {"['B']"}, trip
        one.run("DELETE FROM elements")
        one.run("DELETE FROM element_jobs")
        chain.agent.held.clear()
        if not reached:
            break


@pytest.mark.parametrize("forget_first", [True, False])
def test_jobs_follow_replicas_that_come_back(race: Race, servers: Servers, forget_first: bool) -> None:
    """An agent splits an element while the places of its block are forgotten."""
    chain = ChainDesk(servers.first)
    one, other = servers
    blocks = place(one, A, B)
    row = chain.submit(**FILES)
    one.intake(row.id)
    chain.agent.sync()
    chain.agent.sync(0)
    number = min(chain.agent.held)
    post = [post_of(queue, chain.agent, number) for queue in servers]
    forget = [change_of_replicas(queue, blocks, forget=True) for queue in servers]
    race.run(forget[0], post[1]) if forget_first else race.run(post[0], forget[1])
    if forget_first:
        assert sites_of(one, "element_jobs") == {"None"}
    one.bench.do(lambda tx: follow(tx, one.now))
    assert sites_of(one, "element_jobs") == sites_of(one, "elements") == {"None"}
    other.bench.do(change_of_replicas(other, blocks, add=(C,)))
    other.bench.do(lambda tx: follow(tx, other.now))
    assert sites_of(one, "element_jobs") == sites_of(one, "elements") == {"['C']"}
    assert one.sql("SELECT DISTINCT state FROM element_jobs") == [("made",)]


def test_jobs_whose_input_moves_during_a_release_are_released_by_the_next_one(servers: Servers) -> None:
    """The pass has read them with their earlier sites."""
    chain = ChainDesk(servers.first)
    one, other = servers
    blocks = place(one, A, B)
    row = chain.submit(**FILES)
    chain.make_jobs(row.id)

    def release(queue: QueueBench, *between: Request) -> set[str]:
        """One pass; returns the sites of the jobs that it has released."""
        run = ReleaseRun(queue.work_queue, ProgramCache(), [], Random(1), frozenset({row.id}))
        assert queue.bench.do(lambda tx: run.read_groups(tx, queue.now))
        for change in between:
            other.bench.do(change)
        while queue.bench.do(lambda tx: run.release(tx, 100, queue.now)):
            pass
        return {line[0] for line in queue.sql("SELECT site FROM element_jobs WHERE state = 'released'")}

    move = change_of_replicas(other, blocks, add=(C,), remove=("A", "B"))
    assert release(one, move, lambda tx: follow(tx, other.now)) == set()
    assert release(one) == {"C"}


def test_a_resubmission_begins_with_the_present_locations(servers: Servers) -> None:
    """Its pieces failed before their input came to another site."""
    chain = ChainDesk(servers.first)
    one = servers.first
    blocks = place(one, A)
    row, _ = chain.failed_request(2, **FILES)
    place(one, C)
    again = chain.resubmit(row.id).row.id
    assert sites_of(one, f"elements WHERE request_id = {again}") == {"['C']"}
    one.bench.do(change_of_replicas(one, blocks, forget=True))
    one.bench.do(lambda tx: follow(tx, one.now))
    assert sites_of(one, f"elements WHERE request_id = {again}") == {"None"}
