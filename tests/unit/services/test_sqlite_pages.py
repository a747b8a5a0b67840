"""The pages of the file, and how much is written between checkpoints whatever they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pilotage.store.admin.sqlite_backup import create_backup, restore
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.sqlite import CHECKPOINT_SIZE, PAGE_SIZE, open_writer
from pilotage.store.tables import instance


def made(path: Path, size: int | None = None) -> Path:
    """A database; `size`: its file was there before, with pages of so many bytes."""
    if size is not None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size={size}")
            connection.execute("CREATE TABLE earlier (id INTEGER)")
    engine = sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    return path


def pages(path: Path) -> tuple[int, int]:
    """Bytes of a page, and bytes after which the writer makes a checkpoint."""
    with closing(open_writer(path)) as writer:
        size = int(writer.execute("PRAGMA page_size").fetchone()[0])
        return size, int(writer.execute("PRAGMA wal_autocheckpoint").fetchone()[0]) * size


def test_a_new_file_has_small_pages(tmp_path: Path) -> None:
    assert pages(made(tmp_path / "new.db")) == (PAGE_SIZE, CHECKPOINT_SIZE)


@pytest.mark.parametrize("size", [1024, 4096])
def test_a_file_that_is_there_keeps_its_pages(tmp_path: Path, size: int) -> None:
    assert pages(made(tmp_path / "old.db", size)) == (size, CHECKPOINT_SIZE)


def test_a_restored_database_has_the_pages_of_its_backup(tmp_path: Path) -> None:
    old, new = made(tmp_path / "old.db", 4096), made(tmp_path / "new.db")
    with closing(open_writer(old)) as writer:
        instance.create(writer, "old", 0.0)
    create_backup(old, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", new, tmp_path / "aside.db")
    assert pages(new) == (4096, CHECKPOINT_SIZE)
