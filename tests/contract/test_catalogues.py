"""The contract of catalogues: our own one keeps it on each store, and a mirror is as true as its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.datasets.facts import ELSEWHERE, BlockEntry, FileEntry, Replica
from pilotage.core.errors import Unreachable
from pilotage.outside.catalogue.adapter import Catalogue, KnownReplicas
from pilotage.services.catalogue import locations, mirror, registration
from pilotage.services.catalogue.locations import ReplicaChange
from pilotage.services.catalogue.own import OwnCatalogue
from pilotage.store.tables import datasets, location_sets
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.writer import Writer
from tests.contract.stores import sqlite_store

ADA = Viewer("ada")
HERE, THERE = Replica("here", "/data"), Replica("there", "root://there//store")
FILES = tuple(FileEntry(f"f{number:04}", number, 2, "", ((1, number, number),)) for number in range(1234))


def fill(writer: Writer, name: str) -> None:
    """Blocks a (1,234 files, here and there), b (unknown place), c (known to be nowhere), and an open block d."""
    writer.call(lambda tx: registration.create(tx, name, owner="ada", group="g", changer=ADA, now=1.0))
    entries = [
        *((BlockEntry("a", FILES[n : n + 500], (HERE, THERE)), n >= 1000) for n in (0, 500, 1000)),
        (BlockEntry("b", (FileEntry("b/1"),)), True),
        (BlockEntry("c", (FileEntry("c/1"),), (HERE,)), True),
        (BlockEntry("d", (FileEntry("d/1"),), (HERE,)), False),
    ]
    for entry, complete in entries:
        writer.call(
            lambda tx, entry=entry, complete=complete: registration.add_block(
                tx, name, entry, changer=ADA, complete=complete, now=2.0
            )
        )
    gone = ReplicaChange(remove=("here",))
    writer.call(lambda tx: locations.change_replicas(tx, [block_id(tx.connection, name, "c")], gone, 3.0))


def block_id(connection: Any, dataset: str, block: str) -> int:
    row = datasets.block_named(connection, registration.find(connection, dataset).id, block)
    assert row is not None
    return row.id


@pytest.fixture
def source(writer: Writer, connection: Any) -> Catalogue:
    fill(writer, "raw")
    return OwnCatalogue(connection)


def test_blocks_are_listed_once_they_are_closed_in_this_order(source: Catalogue, writer: Writer) -> None:
    assert [(block.name, block.files) for block in source.blocks("raw", 0, 10)] == [
        ("a", 1234),
        ("b", 1),
        ("c", 1),
    ]
    [first] = source.blocks("raw", 0, 1)
    assert [block.name for block in source.blocks("raw", first.cursor, 1)] == ["b"]
    last = source.blocks("raw", 0, 10)[-1].cursor
    writer.call(lambda tx: registration.close(tx, "raw", changer=ADA))
    assert [block.name for block in source.blocks("raw", last, 10)] == ["d"]
    assert source.blocks("none", 0, 10) == []


def test_a_block_has_all_of_its_files(source: Catalogue) -> None:
    assert tuple(source.files("raw", "a")) == FILES
    assert source.files("raw", "none") == []
    assert source.files("none", "a") == []


def test_a_data_set_is_open_closed_or_absent(source: Catalogue, writer: Writer) -> None:
    assert source.is_open("raw") is True
    writer.call(lambda tx: registration.close(tx, "raw", changer=ADA))
    assert source.is_open("raw") is False
    assert source.is_open("none") is None


def test_replicas_tell_unknown_from_nowhere(source: Catalogue) -> None:
    assert source.replicas("raw", ["a", "b", "c", "none"]) == {
        "a": KnownReplicas((HERE, THERE), 2.0),
        "c": KnownReplicas((), 3.0),
    }
    assert source.replicas("none", ["a"]) == {}


# --- the mirror


class Unsteady:
    """A catalogue that may be down, and that does not know where some blocks are."""

    def __init__(self, inner: Catalogue) -> None:
        self._inner = inner
        self.down = False
        self.calls = 0
        self.fails_at = 0
        self.unknown: set[str] = set()

    def _answer(self) -> None:
        self.calls += 1
        if self.down or self.calls == self.fails_at:
            raise Unreachable("the catalogue does not answer")

    def is_open(self, dataset: str) -> bool | None:
        self._answer()
        return self._inner.is_open(dataset)

    def blocks(self, dataset: str, after: int, limit: int) -> Any:
        self._answer()
        return self._inner.blocks(dataset, after, limit)

    def files(self, dataset: str, block: str) -> Sequence[FileEntry]:
        self._answer()
        return self._inner.files(dataset, block)

    def replicas(self, dataset: str, blocks: Sequence[str]) -> Mapping[str, KnownReplicas]:
        self._answer()
        return self._inner.replicas(dataset, [name for name in blocks if name not in self.unknown])


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Unsteady, Writer]]:
    """The catalogue of another pool, and its writer."""
    store = sqlite_store(tmp_path / "elsewhere", True)
    connection = store.open_writer()
    writer = Writer(connection)
    writer.start()
    fill(writer, "raw")
    yield Unsteady(OwnCatalogue(store.readers.connection())), writer
    writer.stop()
    connection.close()
    store.readers.close()
    store.engine.dispose()


def copy(writer: Writer, source: Catalogue, after: int = 0) -> int:
    writer.call(lambda tx: registration.create(tx, "raw", owner="ada", group="g", changer=ADA, now=5.0))
    return mirror.copy_blocks(source, "raw", after, writer.call, 5.0, ADA)


def test_a_mirror_has_what_its_source_has_whenever_it_was_interrupted(
    writer: Writer, connection: Any, elsewhere: tuple[Unsteady, Writer]
) -> None:
    source, _ = elsewhere
    own = OwnCatalogue(connection)
    for call in range(1, 6):
        source.calls, source.fails_at = 0, call
        with pytest.raises(Unreachable):
            copy(writer, source)
    source.fails_at = 0
    assert copy(writer, source) == 3
    assert [tuple(block) for block in own.blocks("raw", 0, 10)] == [
        tuple(b) for b in source.blocks("raw", 0, 10)
    ]
    for block in ("a", "b", "c"):
        assert own.files("raw", block) == source.files("raw", block)


def test_an_outage_or_an_unknown_place_never_blanks_a_location(
    writer: Writer, connection: Any, elsewhere: tuple[Unsteady, Writer]
) -> None:
    source, its_writer = elsewhere
    copy(writer, source)

    def refresh() -> int:
        return mirror.refresh_replicas(source, connection, "raw", writer.call)

    def state(block: str) -> tuple[frozenset[str] | None, float | None]:
        row = datasets.blocks_by_ids(connection, [block_id(connection, "raw", block)]).popitem()[1]
        return location_sets.sites_of(connection, [row.location_set]).get(row.location_set), row.located

    known = frozenset({"here", "there", ELSEWHERE})  # THERE is an address
    refresh()
    assert state("a") == (known, 2.0)
    assert state("b") == (None, None)
    assert state("c") == (frozenset(), 3.0)
    moved = block_id(source._inner._connection, "raw", "a")  # type: ignore[attr-defined]
    its_writer.call(
        lambda tx: locations.change_replicas(tx, [moved], ReplicaChange(remove=("here", "there")), 9.0)
    )
    source.down = True
    with pytest.raises(Unreachable):
        refresh()
    assert state("a") == (known, 2.0)
    source.down, source.unknown = False, {"a"}
    assert refresh() == 0
    assert state("a") == (known, 2.0)
    source.unknown.clear()
    assert refresh() == 1
    assert state("a") == (frozenset(), 9.0)
