"""What servers of one database hold in common: locks of duties, ids, change rows, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Overloaded, Superseded
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.server.process.rim import RealRim
from pilotage.store.cluster import changes, duty_leases, limit_leases, servers
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.cluster.id_allocator import BlockIds, Counters, SequentialIds
from pilotage.store.cluster.servers import ServerRow
from pilotage.store.engine.connection import ServerEvicted, WriterConnection, database_time
from tests.contract.stores import Store, postgresql_store
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow

Open = Callable[[], WriterConnection]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens one more connection to the same PostgreSQL database."""
    store, made = postgresql_store(tmp_path, migrated=True), []

    def another() -> WriterConnection:
        made.append(store.open_writer())
        return made[-1]

    yield another
    for connection in made:
        connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def server_named(name: str, alive_at: float = 1.0) -> ServerRow:
    return ServerRow(name, "host", "http://host", "1", 1.0, alive_at, 1)


# --- duties


def test_a_duty_is_held_by_one_and_taken_over_with_a_new_epoch(connection: Any, store: Store) -> None:
    duty_leases.create(connection, ["leases", "queues"])
    assert duty_leases.claim(connection, ["leases", "queues"], "a", 10.0, 100.0) == {"leases": 1, "queues": 1}
    assert duty_leases.claim(connection, ["leases"], "b", 10.0, 101.0) == {}
    assert duty_leases.claim(connection, ["leases"], "a", 10.0, 105.0) == {"leases": 1}
    duty_leases.check(connection, "leases", 1)
    connection.execute("UPDATE duties SET until = 1 WHERE name = 'leases'")
    assert duty_leases.claim(connection, ["leases"], "b", 10.0, 200.0) == {"leases": 2}
    with pytest.raises(Superseded, match="leases"):
        duty_leases.check(connection, "leases", 1)
    duty_leases.release(connection, "b")
    assert duty_leases.claim(connection, ["leases", "queues"], "c", 10.0, 201.0)["leases"] == 3
    assert duty_leases.claim(connection, ["unheard of"], "c", 10.0, 201.0) == {}
    assert duty_leases.claim(connection, [], "c", 10.0, 201.0) == {}


def test_on_a_file_each_start_takes_the_duties_with_a_new_epoch(connection: Any, store: Store) -> None:
    for epoch in (1, 2, 3):
        duty_leases.create(connection, ["leases"])
        if store.name == "postgresql":
            connection.execute("UPDATE duties SET until = 1")
        assert duty_leases.claim(connection, ["leases"], f"start {epoch}", 1000.0, 5.0) == {"leases": epoch}


def test_a_frozen_server_writes_nothing_when_it_wakes(opened: Open) -> None:
    frozen, other = opened(), opened()
    duty_leases.create(frozen, ["leases"])
    [epoch] = duty_leases.claim(frozen, ["leases"], "a", 10.0, 0.0).values()
    frozen.execute("UPDATE duties SET until = 1")
    duty_leases.claim(other, ["leases"], "b", 10.0, 0.0)
    frozen.begin()
    with pytest.raises(Superseded):
        duty_leases.check(frozen, "leases", epoch)
    frozen.rollback()


def test_nobody_takes_a_duty_over_in_the_middle_of_a_fenced_transaction(opened: Open) -> None:
    holder, other = opened(), opened()
    duty_leases.create(holder, ["leases"])
    [epoch] = duty_leases.claim(holder, ["leases"], "a", 10.0, 0.0).values()
    holder.execute("UPDATE duties SET until = 1")
    holder.begin()
    duty_leases.check(holder, "leases", epoch)
    # The claim does not wait either: whoever asks has other things to do.
    assert duty_leases.claim(other, ["leases"], "b", 10.0, 0.0) == {}
    holder.commit()
    assert duty_leases.claim(other, ["leases"], "b", 10.0, 0.0) == {"leases": epoch + 1}


def test_of_many_claims_at_once_one_wins(opened: Open) -> None:
    asking = [opened() for _ in range(4)]
    duty_leases.create(asking[0], ["leases"])
    won: list[tuple[int, int]] = []

    def claim(number: int) -> None:
        for _ in range(50):
            asking[number].begin()
            mine = duty_leases.claim(asking[number], ["leases"], f"server {number}", 60.0, 0.0)
            asking[number].commit()
            won.extend((number, epoch) for epoch in mine.values())

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(won)) == 1
    assert won[0][1] == 1


# --- ids


def test_ids_of_blocks_are_given_once_and_above_the_floor(opened: Open) -> None:
    given: list[int] = []
    lock = threading.Lock()

    def take(connection: WriterConnection) -> None:
        counters = Counters(connection)
        counters.raise_floor("jobs", 1000)
        numbers = BlockIds(lambda count: counters.take("jobs", count), 7)
        mine: list[Any] = []
        for count in (1, 3, 20, 1, 6, 2) * 20:
            first = numbers.run(count)
            mine += range(first, first + count)
        with lock:
            given.extend(mine)

    threads = [threading.Thread(target=take, args=(opened(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 3 * 20 * 33
    assert min(given) > 1000


def test_a_block_outlives_the_transaction_that_it_was_taken_in(opened: Open) -> None:
    writing, counters = opened(), Counters(opened())
    counters.raise_floor("events", 0)
    numbers = counters.numbers("events")
    writing.begin()
    assert numbers.next() == 1
    writing.rollback()
    assert counters.numbers("events").next() > numbers.next() > 1


def test_adjacent_blocks_of_ids_are_joined() -> None:
    last = 0

    def take(count: int) -> int:
        nonlocal last
        last += count
        return last - count + 1

    numbers, plain = BlockIds(take, 5), SequentialIds(0)
    for count in (1, 3, 4, 20, 1, 2):
        assert numbers.run(count) == plain.run(count)
    assert (numbers.next(), plain.next()) == (32, 32)


# --- the clock of the database


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_step_of_the_machines_clock_moves_no_time_of_the_pool(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease with an hour left must not end because somebody sets the clock of one server's machine."""
    real, steps = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + sum(steps))
    clock, reader = object.__new__(RealRim).database_clock(store.readers), store.readers.connection()
    for step in (4000.0, -9000.0):
        steps.append(step)
        assert clock() == pytest.approx(database_time(reader, 0.0), abs=PATIENCE)
        clock.set()


# --- change rows


def test_a_change_of_a_transaction_that_commits_late_is_not_lost(opened: Open) -> None:
    """By numbers it would be: the reader notes 2, then 1 is committed, and `id > 2` never shows it."""
    early, late, reader = opened(), opened(), opened()
    servers.register(reader, server_named("reader"))
    since = changes.oldest_open_transaction(reader)
    early.begin()
    changes.write(early, "a", "one", 1.0)
    early.execute("SELECT 1")  # until then it may wait
    late.begin()
    changes.write(late, "b", "two", 1.0)
    late.commit()

    # A reader that goes by numbers.
    noted = [row[0] for row in reader.execute("SELECT id FROM changes ORDER BY id")]
    # One that goes by transactions sees nothing yet: the earlier one may still commit.
    found = changes.read(reader, since, "reader")
    assert found.changes == ()
    early.commit()
    unseen = reader.execute("SELECT payload FROM changes WHERE id > ?", (max(noted),)).fetchall()
    assert unseen == []  # "one" is lost by numbers
    found = changes.read(reader, found.position, "reader")
    assert [change.payload for change in found.changes] == ["one", "two"]
    assert changes.read(reader, found.position, "reader").changes == ()


def test_nothing_is_lost_or_seen_twice_among_many_writers(opened: Open) -> None:
    reader, writing = opened(), [opened() for _ in range(3)]
    servers.register(reader, server_named("reader"))
    since, done, seen = changes.oldest_open_transaction(reader), threading.Event(), []

    def write(number: int) -> None:
        for turn in range(60):
            writing[number].begin()
            changes.write(writing[number], f"server {number}", f"{number} {turn}", 1.0)
            if turn % 7 == 3:
                writing[number].rollback()
            else:
                writing[number].commit()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        if not any(thread.is_alive() for thread in threads):
            done.set()
        # Few at once: whole transactions are read all the same.
        found = changes.read(reader, since, "reader", 4)
        while found.changes:
            seen += [change.payload for change in found.changes]
            since = found.position
            found = changes.read(reader, since, "reader", 4)
        since = found.position
    meant = [f"{number} {turn}" for number in range(3) for turn in range(60) if turn % 7 != 3]
    assert sorted(seen) == sorted(meant)


def test_a_follower_learns_that_rows_are_gone_or_that_it_was_given_up(opened: Open) -> None:
    writing, reader = opened(), opened()
    servers.register(reader, server_named("reader"))
    since = changes.oldest_open_transaction(reader)
    for at in (1.0, 2.0):
        writing.begin()
        changes.write(writing, "a", f"at {at}", at)
        writing.commit()
    assert changes.prune(writing, 2.0) == 1
    found = changes.read(reader, since, "reader")
    assert (found.pruned, found.registered, [change.payload for change in found.changes]) == (
        True,
        True,
        ["at 2.0"],
    )
    assert not changes.read(reader, found.position, "reader").pruned
    servers.evict(writing, "reader")
    assert not changes.read(reader, found.position, "reader").registered
    assert changes.prune(writing, 1.0) == 0
    # Where no server is there, a new one begins anew.
    servers.register(writing, server_named("another"))
    assert writing.execute("SELECT count(*) FROM changes").fetchone()[0] == 0


def test_a_snapshot_says_which_transactions_it_has_seen(opened: Open) -> None:
    still, writing, reader = opened(), opened(), opened()
    still.begin()
    [open_one] = still.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    writing.begin()
    [ended] = writing.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    writing.commit()
    found = TransactionSnapshot.parse(reader.execute(f"SELECT {changes.SNAPSHOT_SQL}").fetchone()[0])
    assert not found.saw(open_one)
    assert found.saw(ended)
    assert not found.saw(ended + 1000)
    still.rollback()


# --- servers


def test_a_silent_server_is_given_up_but_not_while_it_writes(connection: Any, store: Store) -> None:
    servers.register(connection, server_named("a"))
    servers.register(connection, server_named("b", 50.0))
    duty_leases.create(connection, ["leases"])
    duty_leases.claim(connection, ["leases"], "a", 1e9, 0.0)
    assert [one.name for one in servers.live(connection)] == ["a", "b"]
    assert servers.lock_silent(connection, 20.0, "b") == ["a"]
    assert servers.lock_silent(connection, 60.0, "b") == ["a"]
    servers.evict(connection, "a")
    assert not servers.heartbeat(connection, "a", 51.0, 1)
    assert servers.heartbeat(connection, "b", 51.0, 2)
    [left] = servers.live(connection)
    assert (left.name, left.policy_version) == ("b", 2)
    assert list(duty_leases.claim(connection, ["leases"], "b", 1.0, 0.0)) == ["leases"]


# --- limits

HERE, THERE = ("here", "", "owner", "alice"), ("there", "", "owner", "bob")


def test_limits_and_the_allocations_of_servers_are_stored(connection: Any) -> None:
    states = {HERE: UnleasedRoom(5, 3, 1.0, 7.0), THERE: UnleasedRoom(None, 0, 0.5, 8.0)}
    limit_leases.save_states(connection, states)
    assert limit_leases.states(connection) == limit_leases.states(connection, lock=True) == states
    limit_leases.create_allocations(connection, "a", [HERE, THERE])
    limit_leases.save_allocations(connection, "a", {HERE: Allocation(2, 1, 9.0, True)})
    limit_leases.create_allocations(connection, "a", [HERE])
    assert limit_leases.allocations_of(connection, "a") == {
        HERE: Allocation(2, 1, 9.0, True),
        THERE: Allocation(),
    }
    assert limit_leases.allocations(connection)[HERE] == {"a": Allocation(2, 1, 9.0, True)}
    assert limit_leases.revoke(connection, "a")[HERE] == Allocation(2, 1, 9.0, True)
    with pytest.raises(Overloaded):
        limit_leases.save_allocations(connection, "a", {HERE: Allocation(1)})
    limit_leases.delete_limits(connection, [HERE])
    assert limit_leases.states(connection).keys() == {THERE}


def test_a_server_that_was_given_up_carries_out_nothing_more(opened: Open) -> None:
    own, other = opened(), opened()
    servers.register(own, server_named("a"))
    own.bind_to_server("a")
    own.begin()
    duty_leases.create(own, ["leases"])
    # In the middle of a transaction it is not given up.
    assert servers.lock_silent(other, 100.0, "b") == []
    own.commit()
    assert servers.lock_silent(other, 100.0, "b") == ["a"]
    servers.evict(other, "a")
    own.begin()
    with pytest.raises(ServerEvicted, match="start it again"):
        own.execute("SELECT 1")
    assert not own.in_transaction
    own.begin()
    with pytest.raises(ServerEvicted):
        own.commit()
    assert not own.in_transaction
