"""The catalogue on each store: registration, blocks, replicas, outputs, and the locations of elements."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from pilotage.services.catalogue import locations, outputs, registration, removal
from pilotage.services.catalogue.locations import ReplicaChange
from pilotage.services.catalogue.outputs import BlockLimits, WrittenFile
from pilotage.store.engine.connection import bounded_sum
from pilotage.store.tables import dataset_removal, dataset_totals, datasets, location_sets, replicas
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Store
from tests.deadlines import PATIENCE

ADA = Viewer("ada")
HERE, THERE = Replica("here", "/data"), Replica("there", "root://there//store")


def add(
    writer: Writer,
    names: str,
    *,
    block: str = "run1",
    places: tuple[Replica, ...] = (HERE,),
    complete: bool = True,
    now: float = 1.0,
    changer: Viewer = ADA,
    **facts: Any,
) -> registration.Added:
    entry = BlockEntry(block, tuple(FileEntry(name, **facts) for name in names.split()), places)
    return writer.call(
        lambda tx: registration.add_block(tx, "raw", entry, changer=changer, complete=complete, now=now)
    )


@pytest.fixture
def raw(writer: Writer) -> int:
    """An empty data set of ada's."""
    return writer.call(
        lambda tx: registration.create(tx, "raw", owner="ada", group="physics", changer=ADA, now=1.0)
    ).id


def blocks(connection: Any, dataset: int) -> dict[str, list[str]]:
    """The names of the files by block."""
    return {
        block.name: [file.name for file in datasets.file_page(connection, block.id, 0, 1000)]
        for block in datasets.block_page(connection, dataset, 0, 1000)
    }


def sites(connection: Any, block: int) -> tuple[str, ...] | None:
    row = datasets.blocks_by_ids(connection, [block])[block]
    sets = location_sets.sites_of(connection, [row.location_set])
    return tuple(sorted(sets[row.location_set])) if row.location_set in sets else None


def test_a_block_is_closed_with_its_last_files_and_has_its_location(
    writer: Writer, connection: Any, raw: int
) -> None:
    lumis = ((1, 1, 4), (2, 7, 7))
    assert (
        add(writer, "a", complete=False, size=3, events=10, lumis=lumis, checksum="adler32:00000001").files
        == 1
    )
    [begun] = datasets.open_blocks(connection, raw)
    assert datasets.closed_blocks(connection, raw, 0, 10) == []
    assert add(writer, "b c", size=4, events=20) == registration.Added(2, 0, 1)
    [block] = datasets.closed_blocks(connection, raw, 0, 10)
    assert (block.id, block.files, block.events, block.size) == (begun.id, 3, 50, 11)
    assert sites(connection, block.id) == ("here",)
    assert block.located == 1.0
    file = datasets.files_named(connection, raw, ["a"])["a"]
    assert datasets.lumis_of(file) == [[1, 1, 4], [2, 7, 7]]
    assert dataset_totals.totals(connection, [raw]) == {raw: dataset_totals.Totals(1, 0, 3, 50, 11)}


def test_adding_again_changes_nothing_and_new_files_get_a_further_block(
    writer: Writer, connection: Any, raw: int
) -> None:
    add(writer, "a b")
    assert add(writer, "a b") == registration.Added(0, 2, 0)
    for number, name in enumerate(("c", "d", "e", "f", "g"), 2):
        assert add(writer, f"a {name}") == registration.Added(1, 1, 1)
        assert blocks(connection, raw)[f"run1#{number}"] == [name]
    numbers = [block.closed_number for block in datasets.closed_blocks(connection, raw, 0, 10)]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert [b.name for b in datasets.closed_blocks(connection, raw, 4, 10)] == ["run1#5", "run1#6"]


def test_a_block_that_was_begun_goes_on_only_at_the_same_places(
    writer: Writer, connection: Any, raw: int
) -> None:
    add(writer, "a", complete=False)
    add(writer, "b", complete=False, places=(HERE, THERE))
    add(writer, "c", complete=True, places=(HERE, THERE))
    assert blocks(connection, raw) == {"run1": ["a"], "run1#2": ["b", "c"]}
    assert not datasets.open_blocks(connection, raw)


def test_a_registered_file_never_changes(writer: Writer, raw: int) -> None:
    add(writer, "a", size=3, events=5)
    assert add(writer, "a", size=0, checksum="md5:" + "0" * 32).known == 1
    with pytest.raises(Conflict, match=r"another size.*: a"):
        add(writer, "a b", size=4)
    assert add(writer, "b").files == 1


def test_files_without_a_place_have_an_unknown_location(writer: Writer, connection: Any, raw: int) -> None:
    add(writer, "a", places=())
    [block] = datasets.closed_blocks(connection, raw, 0, 10)
    assert (block.location_set, block.located) == (location_sets.UNKNOWN, None)


def test_only_the_owner_and_its_sharing_group_change_a_data_set(writer: Writer, raw: int) -> None:
    for changer in (Viewer("bob"), Viewer("bob", "other")):
        with pytest.raises(Forbidden):
            add(writer, "a", changer=changer)
        with pytest.raises(Forbidden):
            writer.call(lambda tx, by=changer: registration.close(tx, "raw", changer=by))
        with pytest.raises(Forbidden):
            writer.call(lambda tx, by=changer: removal.remove(tx, "raw", changer=by, now=1.0))
        with pytest.raises(Forbidden):
            writer.call(
                lambda tx, by=changer: registration.create(
                    tx, "raw", owner="bob", group="other", changer=by, now=1.0
                )
            )
    for changer in (Viewer("bob", "physics"), Viewer("root", everything=True)):
        add(writer, f"by-{changer.owner}", changer=changer)


def test_a_closed_data_set_takes_only_files_that_it_has(writer: Writer, connection: Any, raw: int) -> None:
    add(writer, "a", complete=False)
    for _ in range(2):
        writer.call(lambda tx: registration.close(tx, "raw", changer=ADA))
    assert len(datasets.closed_blocks(connection, raw, 0, 10)) == 1
    assert add(writer, "a").known == 1
    with pytest.raises(Conflict, match="is closed"):
        add(writer, "b")


def test_a_removed_data_set_is_gone_at_once_and_its_rows_in_slices(
    writer: Writer, connection: Any, raw: int
) -> None:
    add(writer, "a b c")
    add(writer, "d", block="run2")
    writer.call(lambda tx: removal.remove(tx, "raw", changer=ADA, now=2.0))
    with pytest.raises(NotFound):
        add(writer, "x")
    assert datasets.page(connection, 0, 10) == []
    again = writer.call(
        lambda tx: registration.create(tx, "raw", owner="bob", group="g", changer=Viewer("bob"), now=3.0)
    )
    slices = 0
    [removed] = dataset_removal.removed(connection)
    while writer.call(lambda tx: removal.delete_removed(tx, removed, 2)):
        slices += 1
    assert slices == 3
    for table in ("files", "blocks", "replicas"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
    assert [row.id for row in datasets.page(connection, 0, 10)] == [again.id]


def test_replicas_come_and_go_and_unknown_is_not_empty(writer: Writer, connection: Any, raw: int) -> None:
    add(writer, "a")
    [block] = [row.id for row in datasets.closed_blocks(connection, raw, 0, 1)]

    def change(now: float, **change: Any) -> int:
        return writer.call(lambda tx: locations.change_replicas(tx, [block], ReplicaChange(**change), now))

    assert change(2.0, add=(Replica("there", ""),)) == 1
    assert sites(connection, block) == ("here", "there")
    assert replicas.of_blocks(connection, [block])[block][1].prefix == "/data"
    # It has an address now that other sites can read.
    assert change(3.0, add=(THERE,)) == 1
    assert sites(connection, block) == ("://", "here", "there")
    assert change(4.0, remove=("here",)) == 1
    assert change(5.0, remove=("there",)) == 1
    row = datasets.blocks_by_ids(connection, [block])[block]
    assert (sites(connection, block), row.located) == ((), 5.0)
    assert change(6.0, forget=True) == 1
    row = datasets.blocks_by_ids(connection, [block])[block]
    assert (row.location_set, row.located, sites(connection, block)) == (location_sets.UNKNOWN, None, None)
    with pytest.raises(InvalidInput, match="prefix"):
        change(7.0, add=(Replica("there", ""),))
    assert change(8.0, add=(Replica("*", "https://web"),)) == 1
    assert datasets.blocks_by_ids(connection, [block])[block].location_set == 1
    assert [row.number for row in replicas.moved_blocks(connection, 10)] == [6]


# --- outputs


def register(
    writer: Writer, dataset: int, job: int, *names: str, place: Replica = HERE, now: float = 1.0
) -> Any:
    files = [WrittenFile(dataset, FileEntry(name, 10, 2), place) for name in names]
    return writer.call(
        lambda tx: outputs.register_outputs(tx, job, files, now, BlockLimits(files=3, size=10**6, age=100.0))
    )


@pytest.fixture
def produced(writer: Writer) -> int:
    def create(tx: Transaction) -> int:
        row = outputs.create_output(tx, "aod", owner="ada", group="g", request=7, step=0, now=1.0)
        assert row is not None
        return row.id

    return writer.call(create)


def test_outputs_go_to_the_open_block_of_their_place(writer: Writer, connection: Any, produced: int) -> None:
    assert register(writer, produced, 1, "1/a") == ()
    assert register(writer, produced, 2, "2/a", place=THERE) == ()
    assert register(writer, produced, 3, "3/a", "3/b") == ()
    assert register(writer, produced, 4, "4/a") == ()
    assert register(writer, produced, 5, "5/a", place=Replica("here", "/scratch")) == ()
    assert blocks(connection, produced) == {
        "here": ["1/a", "3/a", "3/b"], "there": ["2/a"], "here#2": ["4/a"], "here#3": ["5/a"],
    }  # fmt: skip


def test_outputs_registered_again_change_nothing_and_foreign_names_are_reported(
    writer: Writer, connection: Any, produced: int
) -> None:
    assert register(writer, produced, 1, "a", "b") == ()
    assert register(writer, produced, 1, "a", "b") == ()
    assert register(writer, produced, 2, "b", "c") == ("b",)
    assert blocks(connection, produced) == {"here": ["a", "b", "c"]}


def test_blocks_close_at_a_limit_and_all_of_them_at_the_end(
    writer: Writer, connection: Any, produced: int
) -> None:
    limits = BlockLimits(files=2, size=1000, age=100.0)

    def close(now: float) -> int:
        due = outputs.due_blocks(connection, outputs.begun_blocks(connection), now, limits).get(produced, [])
        return writer.call(lambda tx: outputs.close_blocks(tx, produced, due))

    register(writer, produced, 1, "a", "b")
    register(writer, produced, 2, "c", place=THERE)
    assert close(2.0) == 1
    [block] = datasets.closed_blocks(connection, produced, 0, 10)
    assert (block.name, block.files, block.events, block.size) == ("here", 2, 4, 20)
    assert close(3.0) == 0
    assert close(101.0) == 1
    register(writer, produced, 3, "d")
    with pytest.raises(Conflict, match="request 7"):
        writer.call(lambda tx: registration.close(tx, "aod", changer=ADA))
    assert writer.call(lambda tx: outputs.close_output(tx, produced, 102.0))
    assert [row.name for row in datasets.closed_blocks(connection, produced, 0, 10)] == [
        "here",
        "there",
        "here#2",
    ]
    row = datasets.by_name(connection, "aod")
    assert row is not None
    assert not row.open
    register(writer, produced, 4, "late", now=102.5)
    assert close(103.0) == 1, "a block that comes too late does not stay open"


def test_a_user_adds_nothing_to_the_output_of_a_request(writer: Writer, produced: int) -> None:
    entry = BlockEntry("x", (FileEntry("x"),), (HERE,))
    with pytest.raises(Conflict, match="request 7 writes"):
        writer.call(lambda tx: registration.add_block(tx, "aod", entry, changer=ADA, complete=True, now=1.0))


def test_two_servers_share_an_open_block_and_the_end_waits_for_neither(store: Store) -> None:
    if store.name == "sqlite":
        pytest.skip("a SQLite file has one server")
    first, second = store.open_writer(), store.open_writer()
    try:
        first.begin()
        row = outputs.create_output(
            Transaction(first), "aod", owner="ada", group="g", request=7, step=0, now=1.0
        )
        assert row is not None
        outputs.register_outputs(Transaction(first), 1, [WrittenFile(row.id, FileEntry("a"), HERE)], 1.0)
        first.commit()
        for session, job in ((first, 2), (second, 3)):
            session.begin()
            outputs.register_outputs(
                Transaction(session), job, [WrittenFile(row.id, FileEntry(f"{job}"), HERE)], 1.0
            )
        first.commit()
        first.begin()
        [open_block] = datasets.open_blocks(first, row.id)
        assert outputs.close_blocks(Transaction(first), row.id, [open_block.id]) == 0
        assert not outputs.close_output(Transaction(first), row.id, 2.0)
        first.commit()
        second.commit()
        first.begin()
        assert outputs.close_output(Transaction(first), row.id, 2.0)
        first.commit()
        [block] = datasets.closed_blocks(first, row.id, 0, 10)
        assert (block.name, block.files) == ("here", 3)
    finally:
        for session in (first, second):
            session.rollback()
            session.close()


# --- elements


@pytest.fixture
def make_element(connection: Any, raw: int) -> Callable[..., int]:
    """Inserts an element of a request with the data set `raw` as input."""
    connection.execute(
        "INSERT INTO requests (id, name, owner, grp, priority, state, specification, sites, created, changed)"
        " VALUES (1, 'r', 'ada', 'g', 1, 'acquired', '{}', '[]', 1, 1)"
    )
    connection.execute(
        "INSERT INTO request_steps (request_id, position, name, type, start_policy, splitting, input_dataset)"
        " VALUES (1, 0, 's', 'Processing', 'Block', '{}', ?)",
        (raw,),
    )

    def make(blocks: list[int], location_set: int, state: str = "Available") -> int:
        row = connection.execute(
            "INSERT INTO elements (request_id, step, digest, state, jobs, blocks, location_set, created, changed)"
            " VALUES (1, 0, ?, ?, 1, ?, ?, 1, 1) RETURNING id",
            (f"{blocks} {state}", state, json.dumps(blocks), location_set),
        ).fetchone()
        return int(row[0])

    return make


def test_elements_follow_their_blocks_until_they_end(
    writer: Writer, connection: Any, raw: int, make_element: Callable[..., int]
) -> None:
    add(writer, "a", block="x")
    add(writer, "b", block="y", places=(HERE, THERE))
    add(writer, "c", block="z", places=())
    x, y, z = datasets.closed_blocks(connection, raw, 0, 10)
    here = x.location_set
    waiting, held, running, ended = (
        make_element([x.id], here, state) for state in ("Available", "Acquired", "Running", "Failed")
    )
    both = make_element([x.id, y.id], here)
    unknown = make_element([x.id, z.id], location_sets.UNKNOWN)

    def follow(now: float) -> list[int]:
        moved = replicas.moved_blocks(connection, 100)
        elements = locations.elements_of_moved(connection, moved)
        lost = writer.call(lambda tx: locations.move_elements(tx, elements, now))
        writer.call(lambda tx: locations.settle(tx, moved))
        assert replicas.moved_blocks(connection, 10) == []
        return lost

    def change(now: float, **change: Any) -> None:
        writer.call(lambda tx: locations.change_replicas(tx, [x.id], ReplicaChange(**change), now))

    def sets() -> dict[int, int]:
        return dict(connection.execute("SELECT id, location_set FROM elements").fetchall())

    change(10.0, add=(THERE,))
    assert follow(11.0) == []
    two = y.location_set
    following = (waiting, held, running, both)
    assert sets() == dict.fromkeys(following, two) | {ended: here, unknown: location_sets.UNKNOWN}
    change(12.0, remove=("here", "there"))
    assert sorted(follow(13.0)) == sorted(following)
    change(14.0, forget=True)
    assert follow(15.0) == []
    assert sets() == dict.fromkeys((*following, unknown), location_sets.UNKNOWN) | {ended: here}


def test_a_block_that_moves_again_is_not_forgotten(writer: Writer, connection: Any, raw: int) -> None:
    add(writer, "a")
    [block] = [row.id for row in datasets.closed_blocks(connection, raw, 0, 1)]
    change = ReplicaChange(add=(THERE,))
    writer.call(lambda tx: locations.change_replicas(tx, [block], change, 1.0))
    seen = replicas.moved_blocks(connection, 10)
    writer.call(lambda tx: locations.change_replicas(tx, [block], ReplicaChange(remove=("there",)), 2.0))
    writer.call(lambda tx: locations.settle(tx, seen))
    assert [row.number for row in replicas.moved_blocks(connection, 10)] == [2]


@pytest.mark.parametrize("column", ["input_dataset", "further_inputs", "pileup", "output_dataset"])
def test_a_data_set_in_use_is_not_removed(
    writer: Writer, connection: Any, raw: int, make_element: Callable[..., int], column: str
) -> None:
    value = raw if column.endswith("dataset") else json.dumps([7, raw])
    connection.execute("UPDATE request_steps SET input_dataset = NULL")
    connection.execute(f"UPDATE request_steps SET {column} = ?", (value,))
    with pytest.raises(Conflict, match="request 1"):
        writer.call(lambda tx: removal.remove(tx, "raw", changer=ADA, now=1.0))
    connection.execute("UPDATE requests SET state = 'completed'")
    writer.call(lambda tx: removal.remove(tx, "raw", changer=ADA, now=1.0))


def test_finishes_on_two_servers_and_closings_lose_and_double_no_file(store: Store) -> None:
    """Every file is in one closed block, whose counts say so, and the numbers of closed blocks have no gap."""
    if store.name == "sqlite":
        pytest.skip("a SQLite file has one server")
    sessions = [store.open_writer() for _ in range(3)]
    writers = [Writer(session) for session in sessions]
    for writer in writers:
        writer.start()
    limits = BlockLimits(files=7, size=10**9, age=10**9)
    try:
        ids = [
            row.id
            for name in ("aod", "dst")
            if (
                row := writers[0].call(
                    lambda tx, name=name: outputs.create_output(
                        tx, name, owner="ada", group="g", request=7, step=0, now=1.0
                    )
                )
            )
        ]

        def finish(server: int) -> None:
            rng = Random(server)
            for job in range(server, 300, 2):
                files = [
                    WrittenFile(dataset, FileEntry(f"{job}/{dataset}", 10, 2), rng.choice((HERE, THERE)))
                    for dataset in rng.sample(ids, 2)
                ]
                taken = writers[server].call(
                    lambda tx, job=job, files=files: outputs.register_outputs(tx, job, files, 1.0, limits)
                )
                assert taken == ()

        def close(over: threading.Event) -> None:
            while not over.is_set():
                reader = store.readers.connection()
                due = outputs.due_blocks(reader, outputs.begun_blocks(reader), 2.0, limits)
                for dataset, blocks in due.items():
                    writers[2].call(
                        lambda tx, dataset=dataset, blocks=blocks: outputs.close_blocks(tx, dataset, blocks)
                    )

        over = threading.Event()
        with ThreadPoolExecutor(3) as threads:
            finishing = [threads.submit(finish, server) for server in (0, 1)]
            closing = threads.submit(close, over)
            for future in finishing:
                future.result(PATIENCE)
            over.set()
            closing.result(PATIENCE)
        for dataset in ids:
            while not writers[2].call(lambda tx, dataset=dataset: outputs.close_output(tx, dataset, 3.0)):
                pass
            closed = datasets.closed_blocks(sessions[0], dataset, 0, 1000)
            assert [block.closed_number for block in closed] == list(range(1, len(closed) + 1))
            assert len(closed) > 20
            names = []
            for block in closed:
                files = datasets.file_page(sessions[0], block.id, 0, 1000)
                assert (block.files, block.size) == (len(files), 10 * len(files))
                assert 0 < len(files) <= 9
                names += [file.name for file in files]
            assert sorted(names) == sorted(f"{job}/{dataset}" for job in range(300))
    finally:
        for writer, session in zip(writers, sessions, strict=True):
            writer.stop()
            session.close()


def test_two_servers_add_to_one_data_set_at_the_same_time(store: Store) -> None:
    if store.name == "sqlite":
        pytest.skip("a SQLite file has one server")
    sessions = [store.open_writer() for _ in range(2)]
    writers = [Writer(session) for session in sessions]
    for writer in writers:
        writer.start()
    try:
        writers[0].call(
            lambda tx: registration.create(tx, "raw", owner="ada", group="g", changer=ADA, now=1.0)
        )

        def send(writer: Writer) -> int:
            files = [FileEntry(f"{n}") for n in range(200)]
            entries = [BlockEntry("run", tuple(files[n : n + 10]), (HERE,)) for n in range(0, 200, 10)]
            return sum(
                writer.call(
                    lambda tx, entry=entry: registration.add_block(
                        tx, "raw", entry, changer=ADA, complete=True, now=1.0
                    )
                ).files
                for entry in entries
            )

        with ThreadPoolExecutor(2) as threads:
            added = [future.result(PATIENCE) for future in [threads.submit(send, w) for w in writers]]
        assert sum(added) == 200
        closed = datasets.closed_blocks(sessions[0], 1, 0, 1000)
        assert sum(block.files for block in closed) == 200
        assert [block.closed_number for block in closed] == list(range(1, 21))
    finally:
        for writer, session in zip(writers, sessions, strict=True):
            writer.stop()
            session.close()


def test_sums_beyond_64_bits_are_told_as_the_largest_number_and_stop_nothing(
    writer: Writer, connection: Any, raw: int
) -> None:
    """Files of earlier versions may have any number of events."""
    most = 2**63 - 1
    for number in range(3):
        add(writer, f"a{number}", block=f"huge{number}", events=most - number, size=2**62)
    add(writer, "b", complete=False, events=2**62, size=5)
    add(writer, "c d", complete=True, events=2**62, size=5)
    assert dataset_totals.totals(connection, [raw])[raw] == dataset_totals.Totals(4, 0, 6, most, most)
    [(_, *numbers)] = [row[:4] for row in replicas.by_site(connection, raw)]
    assert numbers == [4, 6, most]
    closed = datasets.closed_blocks(connection, raw, 0, 10)
    assert [block.events for block in closed] == [most, most - 1, most - 2, most]
    counted = [
        writer.call(lambda tx, id=block.id: datasets.count_contents(tx.connection, id)) for block in closed
    ]
    assert counted == [1, 1, 1, 3]
    assert datasets.closed_blocks(connection, raw, 0, 10) == closed


@pytest.mark.parametrize(
    "values",
    [[], [0], [5, 2**32 - 1, 1], [2**62, 2**62 - 1], [2**62, 2**62], [2**63 - 1] * 40, [2**32] * 100],
)
def test_a_bounded_sum_is_exact_up_to_its_bound(
    writer: Writer, connection: Any, raw: int, values: list[int]
) -> None:
    for number, value in enumerate(values):
        add(writer, f"f{number}", events=value, complete=False)
    sql = f"SELECT {bounded_sum(connection, 'events')} FROM files WHERE dataset_id = ?"
    assert connection.execute(sql, (raw,)).fetchone()[0] == min(sum(values), 2**63 - 1)
