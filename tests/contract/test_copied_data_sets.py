"""Copies of outside catalogues and registrations in them, on each store."""

from __future__ import annotations

import pytest

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Conflict
from pilotage.core.policy import parse
from pilotage.services.catalogue import following, locations, outputs, registering, registration, removal
from pilotage.services.catalogue.following import CatalogueChange, KnownBlock
from pilotage.services.catalogue.outputs import WrittenFile
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import catalogues, datasets, followed_datasets, registrations
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.writer import Writer

POLICY = parse("""\
[groups.g]
[users.ada]
groups = ["g"]
[catalogues.c]
type = "rucio"
period = 100
retry = 10
[catalogues.c.rucio]
url = "https://rucio.example.org"
""")
HERE = Replica("here", "/out")


def test_a_copy_is_due_when_it_is_asked_for_and_no_more_once_it_was_read(
    writer: Writer, connection: WriterConnection
) -> None:
    def follow(now: float) -> int:
        return writer.call(
            lambda tx: following.follow(tx, POLICY, "c:data:one", owner="ada", group="g", now=now)
        ).id

    def due(now: float) -> list[str]:
        return [row.there for row in following.due_of(connection, POLICY, "c", now)]

    number = follow(1.0)
    assert due(1.0) == ["data:one"]
    writer.call(lambda tx: followed_datasets.begin(tx.connection, number, 2.0))
    assert due(3.0) == []
    assert due(13.0) == ["data:one"], "the reading has failed"
    entry = BlockEntry("data:a", (FileEntry("f", 1), FileEntry("g", 2)), (HERE,))
    writer.call(lambda tx: following.store_files(tx, number, entry, complete=True, now=2.0))
    later = BlockEntry("data:a", (FileEntry("h", 1),), (HERE,))
    writer.call(lambda tx: following.store_files(tx, number, later, complete=False, now=2.0))
    [(name, known)] = following.known_blocks(connection, number).items()
    assert (name, known) == ("data:a", KnownBlock(known.ids, 3, False))
    assert len(known.ids) == 2
    with pytest.raises(Conflict, match="are being copied from c"):
        writer.call(lambda tx: registration.close(tx, "c:data:one", changer=Viewer("ada")))
    assert following.known_blocks(connection, number, after=known.ids[-1]) == {}
    assert writer.call(lambda tx: locations.set_replicas(tx, {known.ids[0]: []}, 3.0)) == 1
    assert followed_datasets.is_behind(connection, number, 2.0)
    writer.call(lambda tx: following.finish_reading(tx, number, 2.0, "a note", closed=False))
    assert not followed_datasets.is_behind(connection, number, 2.0)
    assert followed_datasets.is_behind(connection, number, 2.5)
    assert due(1000.0) == [], "nobody needs it"
    assert follow(20.0) == number
    assert due(20.0) == ["data:one"]
    writer.call(lambda tx: followed_datasets.fail(tx.connection, number, "no such name"))
    row = followed_datasets.of_dataset(connection, number)
    assert row is not None
    assert (row.read, row.problem, row.note) == (2.0, "no such name", "a note")
    assert followed_datasets.counts(connection) == {"c": (1, 2.0)}
    assert [row.dataset for row in followed_datasets.of_catalogue(connection, "c")] == [number]
    writer.call(lambda tx: following.finish_reading(tx, number, 21.0, "", closed=True))
    assert not datasets.by_ids(connection, [number])[number].open
    writer.call(lambda tx: removal.remove(tx, "c:data:one", changer=Viewer("ada"), now=30.0))
    while writer.call(lambda tx: removal.delete_removed(tx, number)):
        pass
    assert followed_datasets.counts(connection) == {}


@pytest.mark.parametrize("column", ["input_dataset", "further_inputs", "pileup"])
def test_a_copy_that_unfinished_requests_read_is_due_after_each_period(
    writer: Writer, connection: WriterConnection, column: str
) -> None:
    followed = writer.call(
        lambda tx: following.follow(tx, POLICY, "c:data:one", owner="ada", group="g", now=1.0)
    ).id
    writer.call(lambda tx: following.finish_reading(tx, followed, 2.0, "", closed=False))
    connection.execute(
        "INSERT INTO requests (id, name, owner, grp, priority, state, specification, sites, created, changed)"
        " VALUES (1, 'r', 'ada', 'g', 1, 'acquired', '{}', '[]', 1, 1)"
    )
    connection.execute(
        f"INSERT INTO request_steps (request_id, position, name, type, start_policy, splitting, {column})"
        " VALUES (1, 0, 's', 'Processing', 'Block', '{}', ?)",
        (followed if column == "input_dataset" else f"[7, {followed}]",),
    )

    def due(now: float) -> list[int]:
        return [row.dataset for row in following.due_of(connection, POLICY, "c", now)]

    assert (due(100.0), due(200.0)) == ([], [followed])
    connection.execute("UPDATE requests SET state = 'completed'")
    assert due(200.0) == []


def test_a_change_of_a_catalogue_is_told_once(writer: Writer, connection: WriterConnection) -> None:
    def answer(now: float, problem: str = "") -> CatalogueChange | None:
        return writer.call(
            lambda tx: following.record_answer(
                tx, "c", now, problem=problem, software="" if problem else "paper 1"
            )
        )

    assert answer(1.0) is None
    assert answer(2.0, "away") == CatalogueChange("c", "away", 2.0)
    assert answer(3.0, "away") is None
    row = catalogues.by_name(connection)["c"]
    assert (row.asked, row.answered, row.software, row.since) == (3.0, 1.0, "paper 1", 2.0)
    assert answer(4.0) == CatalogueChange("c", "", 4.0)


def test_a_block_is_intended_once_and_its_data_set_ends_after_it(
    writer: Writer, connection: WriterConnection
) -> None:
    assert registering.output_catalogue(POLICY, "c:data:out/unmerged") == ""
    made = writer.call(
        lambda tx: outputs.create_output(
            tx,
            "c:data:out",
            owner="ada",
            group="g",
            request=1,
            step=0,
            catalogue=registering.output_catalogue(POLICY, "c:data:out"),
            now=1.0,
        )
    )
    assert made is not None
    files = [
        WrittenFile(made.id, FileEntry(f"1/{number}", 1, 2, "adler32:00000001"), HERE) for number in (1, 2)
    ]
    writer.call(lambda tx: outputs.register_outputs(tx, 1, files, 1.0))

    def intend() -> int:
        return writer.call(lambda tx: registrations.intend(tx.connection, 2.0, 10))

    assert intend() == 0, "its block is open"
    assert writer.call(lambda tx: outputs.close_output(tx, made.id, 2.0))
    assert (intend(), intend()) == (1, 0)
    [row] = registrations.open_ones(connection, "c", 0.0, 10)
    block = registering.outgoing(connection, row)
    assert (block.collection, block.name, block.replicas, len(block.files)) == (
        "data:out",
        "here",
        (HERE,),
        2,
    )
    writer.call(lambda tx: registrations.fail(tx.connection, row.block, "no quota", 3.0))
    assert registrations.open_ones(connection, "c", 3.0, 10) == []
    assert registrations.open_ones(connection, "c", 4.0, 10) == [row._replace(failures=1, problem="no quota")]
    assert registrations.counts(connection) == {"c": (0, 1, "no quota")}
    assert registrations.waiting_of_request(connection, 1) == [("c", 1, "no quota")]
    assert registrations.waiting_of_request(connection, 2) == []
    assert registrations.complete(connection, "c") == []
    writer.call(lambda tx: registrations.finish(tx.connection, row.block, 5.0))
    assert registrations.waiting_of_request(connection, 1) == []
    [ended] = registrations.complete(connection, "c")
    assert ended.there == "data:out"
    writer.call(lambda tx: registrations.set_closed(tx.connection, made.id, 6.0))
    assert registrations.complete(connection, "c") == []
    assert registrations.counts(connection) == {"c": (1, 0, "")}
