"""Backups of PostgreSQL: of any schema, and put back whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.store.admin.database import SqliteDatabase
from pilotage.store.admin.postgresql import PostgresqlDatabase
from pilotage.store.admin.revisions import head_revision
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.tables import instance
from tests.contract.later_schema import LATER, add_revision
from tests.contract.stores import fill
from tests.postgres import server

pytestmark = pytest.mark.slow

OLD = (
    "INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, 'old', 3, 1)",
    "INSERT INTO policies (text, applied_at, applied_by, reason) VALUES ('', 1, 'a', '')",
)


@pytest.fixture
def database() -> Iterator[PostgresqlDatabase]:
    name = server().migrated()
    made = PostgresqlDatabase.parse(server().url(name), server().binaries)
    connection = made.address.open_writer()
    fill(connection)
    connection.close()
    yield made
    server().drop(name)


def asked(database: PostgresqlDatabase, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database.address._conninfo) as session:
        return session.execute(sql.encode()).fetchall()


def test_a_dump_of_an_earlier_schema_is_put_back_and_upgraded(
    database: PostgresqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = server().empty()
    old = PostgresqlDatabase.parse(server().url(earlier), server().binaries)
    engine = old.address.engine()
    upgrade(engine)
    engine.dispose()
    with psycopg.connect(server().url(earlier)) as session:
        for sql in OLD:
            session.execute(sql.encode())
    old.backup(tmp_path / "old")
    server().drop(earlier)
    head = head_revision()
    add_revision(monkeypatch, tmp_path / "later")
    found, aside = database.restore(tmp_path / "old", "20260101T000000")
    assert (found.uuid, found.incarnation) == ("old", 4)
    assert asked(database, f"SELECT count(*) FROM {aside}.jobs") == [(10,)]
    with pytest.raises(Conflict, match=f"schema {head}"):
        database.open(tmp_path, "x")
    assert database.upgrade(tmp_path, "x") == (head, LATER)
    assert database.check() == []
    database.open(tmp_path, "x").close()
    # What was put aside is no part of the next backup, nor in its way.
    database.backup(tmp_path / "new")
    again, _ = database.restore(tmp_path / "new", "20260102T000000")
    assert again.incarnation == 5
    assert again.id_floor > found.id_floor


def test_a_restore_that_fails_leaves_all_as_it_was(database: PostgresqlDatabase, tmp_path: Path) -> None:
    size = database.backup(tmp_path / "whole")
    damaged = tmp_path / "damaged"
    damaged.write_bytes((tmp_path / "whole").read_bytes()[: size - size // 3])
    everything = "SELECT nspname FROM pg_namespace ORDER BY 1"
    before = asked(database, everything), asked(database, "SELECT * FROM jobs ORDER BY id")
    with pytest.raises((InvalidInput, Conflict)):
        database.restore(damaged, "20260101T000000")
    assert (asked(database, everything), asked(database, "SELECT * FROM jobs ORDER BY id")) == before
    connection = database.address.open_writer()
    found = instance.load(connection)
    assert found is not None
    assert found.incarnation == 1
    connection.close()


def test_a_restore_while_a_server_runs_is_refused(database: PostgresqlDatabase, tmp_path: Path) -> None:
    running = database.open(tmp_path, "x")
    database.backup(tmp_path / "copy")
    assert database.check() != []  # fill() is no whole instance: jobs without events
    with pytest.raises(Conflict, match="a server uses"):
        database.restore(tmp_path / "copy", "20260101T000000")
    running.close()


def test_a_missing_program_is_told(database: PostgresqlDatabase, tmp_path: Path) -> None:
    without = PostgresqlDatabase(database.address, tmp_path)
    with pytest.raises(NotFound, match="pg_dump") as refused:
        without.backup(tmp_path / "copy")
    assert "--pg-bin" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_earlier_schema_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on SQLite."""
    old = SqliteDatabase(tmp_path / "old.db")
    engine = sqlite_engine(old.path)
    upgrade(engine)
    with engine.begin() as connection:
        for sql in OLD:
            connection.execute(sa.text(sql))
    engine.dispose()
    head = head_revision()
    add_revision(monkeypatch, tmp_path / "later")
    found, _ = SqliteDatabase(tmp_path / "new.db").restore(old.path, "20260101T000000")
    assert (found.uuid, found.incarnation) == ("old", 4)
    assert SqliteDatabase(tmp_path / "new.db").upgrade(tmp_path, "x") == (head, LATER)
    assert SqliteDatabase(tmp_path / "new.db").check() == []


def test_a_backup_of_a_development_version_is_refused_and_nothing_is_changed(
    database: PostgresqlDatabase, tmp_path: Path
) -> None:
    """On both stores: the database would be of no use."""
    old = "UPDATE alembic_version SET version_num = '0046'"
    with psycopg.connect(database.address._conninfo) as session:
        session.execute(old.encode())
    database.backup(tmp_path / "dump")
    with psycopg.connect(database.address._conninfo) as session:
        session.execute(old.replace("0046", head_revision()).encode())
    with pytest.raises(Conflict, match="development version"):
        database.restore(tmp_path / "dump", "20260101T000000")
    assert asked(database, "SELECT version_num FROM alembic_version") == [(head_revision(),)]
    assert asked(database, "SELECT count(*) FROM jobs") == [(10,)]
    engine = sqlite_engine(tmp_path / "old.db")
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(sa.text(OLD[0]))
        connection.execute(sa.text(old))
    engine.dispose()
    with pytest.raises(Conflict, match="development version"):
        SqliteDatabase(tmp_path / "new.db").restore(tmp_path / "old.db", "20260101T000000")
    assert [path.name for path in tmp_path.glob("new.db*")] == []
