"""A database without room: the caller is told, what was acknowledged is kept, and all goes on when there is room."""

from __future__ import annotations

from functools import partial

import pytest

from pilotage.core.errors import DiskFull
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Store, note, noted

_NO_ROOM = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
"""PostgreSQL's own error, as it would come from a statement that finds no room."""


def _take_room(tx: Transaction) -> None:
    """Have the next growth of an embedded database fail as on a full disk."""
    [pages] = tx.connection.execute("PRAGMA page_count").fetchone()
    tx.connection.execute(f"PRAGMA max_page_count={pages}")


def _give_room(tx: Transaction) -> None:
    tx.connection.execute("PRAGMA max_page_count=1000000")


def _fails(tx: Transaction) -> None:
    if tx.connection.dialect == "postgresql":
        tx.connection.execute(_NO_ROOM)


def test_a_write_without_room_is_told_and_undone(store: Store, writer: Writer) -> None:
    embedded = store.readers.connection().dialect == "sqlite"
    if embedded:
        writer.call(_take_room)
    kept: list[int] = []

    def noting(number: int, tx: Transaction) -> None:
        note(number)(tx)
        _fails(tx)

    def note_until_full() -> None:
        for number in range(10_000):
            writer.call(partial(noting, number))
            kept.append(number)

    with pytest.raises(DiskFull) as told:
        note_until_full()
    assert told.value.retry_after > 0
    assert "space" in told.value.hint
    assert noted(store.readers.connection()) == kept
    if embedded:
        writer.call(_give_room)
    writer.call(note(10_001))
    assert noted(store.readers.connection()) == [*kept, 10_001]


def test_a_write_that_changes_nothing_finds_out_whether_there_is_room(store: Store, writer: Writer) -> None:
    writer.call(lambda tx: instance.create(tx.connection, "here", 1.0))
    before = writer.call(lambda tx: instance.load(tx.connection))
    writer.call(lambda tx: instance.write_unchanged(tx.connection))
    assert writer.call(lambda tx: instance.load(tx.connection)) == before
