"""What other connections see."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pilotage.store.admin import sqlite_backup
from pilotage.store.engine.sqlite import quick_check
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Store, note, noted, sqlite_store
from tests.deadlines import PATIENCE


def test_readers_see_what_is_committed_and_cannot_write(store: Store, writer: Writer) -> None:
    reader = store.readers.connection()
    assert store.readers.connection() is reader
    assert noted(reader) == []
    writer.call(note(1))
    assert noted(reader) == [1]
    for sql in ("DELETE FROM uploads", "CREATE TABLE other (x)", "PRAGMA user_version = 5"):
        with pytest.raises((sqlite3.OperationalError, psycopg.Error)):
            reader.execute(sql)
    assert noted(reader) == [1]


def test_each_thread_has_a_reader_of_its_own(store: Store) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(store.readers.connection()))
    thread.start()
    thread.join(PATIENCE)
    assert found[0] is not store.readers.connection()


def test_a_backup_of_sqlite_is_whole_while_the_writer_writes(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path, migrated=True)
    writer = Writer(store.open_writer())
    writer.start()
    for number in range(50):
        writer.call(note(number))
    copy = tmp_path / "copy.db"
    sqlite_backup.create_backup(Path(store.place), copy)
    writer.call(note(50))
    writer.stop()
    kept = sqlite3.connect(copy)
    assert quick_check(kept) == "ok"
    assert noted(kept) == list(range(50))
    kept.close()
