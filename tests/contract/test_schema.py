"""Migrations and the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from pilotage.core.errors import Conflict
from pilotage.store.admin import new_database, revisions
from pilotage.store.admin.revisions import head_revision
from pilotage.store.admin.upgrade import current_revision, upgrade
from pilotage.store.schema import metadata
from pilotage.store.tables.partitions import is_partition, is_schema_object
from tests.contract.later_schema import LATER, add_revision
from tests.contract.stores import STORES, Store, fill


def test_migrations_lead_to_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        options = {"compare_type": True, "include_object": is_schema_object}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    assert current_revision(store.engine) == head_revision()


def test_migrations_write_the_tables_as_the_schema_would(store: Store, tmp_path: Path) -> None:
    """To the letter, but for the order: partial indexes and ids that are never given twice escape a comparison."""
    direct = STORES[store.name](tmp_path / "direct", False)
    metadata.create_all(direct.engine)
    read = {"sqlite": sqlite_tables, "postgresql": postgresql_catalogue}[store.name]
    made, meant = read(store.engine), read(direct.engine)
    direct.engine.dispose()
    direct.drop()
    assert made.keys() == meant.keys()
    assert len(meant) > len(metadata.tables)
    for name in meant:
        assert made[name] == meant[name], name


def sqlite_tables(engine: sa.Engine) -> dict[str, set[str]]:
    """The parts of what made each table and index."""
    sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"

    def parts(text: str) -> set[str]:
        plain = " ".join(text.split()).replace("(", ",").replace(")", ",").replace('"', "")
        return {" ".join(part.split()) for part in plain.split(",")} - {""}

    with engine.connect() as connection:
        return {name: parts(text) for name, text in connection.execute(sa.text(sql))}


def postgresql_catalogue(engine: sa.Engine) -> dict[str, set[str]]:
    """Columns with types and defaults, constraints, indexes, sequences, and by what tables are divided."""
    sql = """
        SELECT 'column ' || table_name,
          concat_ws(' ', column_name, data_type, is_nullable, column_default, collation_name)
          FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT 'index ' || tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'constraint ' || conrelid::regclass, conname || ' ' || pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 'sequence ' || sequencename, concat_ws(' ', data_type, start_value, increment_by, cycle)
          FROM pg_sequences WHERE schemaname = 'public'
        UNION ALL SELECT 'division ' || partrelid::regclass, pg_get_partkeydef(partrelid) FROM pg_partitioned_table
    """
    found: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for name, text in connection.execute(sa.text(sql)):
            if "alembic" not in name and not is_partition(name.partition(" ")[2]):
                found.setdefault(name, set()).add(text)
    return found


def test_upgrading_a_filled_database_again_changes_nothing(store: Store, connection: Any) -> None:
    fill(connection)
    before = [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables]
    assert any(before)
    upgrade(store.engine)
    assert [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables] == before


WRITTEN_BY_UPGRADES = ("parent_submissions", "parent_changes")
"""Tables with rows that a migration replaces: they say which work is left to do."""

SCHEMAS = Path(__file__).parent / "schemas"
"""The statements that made the tables of each revision of a release, for each kind of database."""
EARLIER = sorted({path.name.partition(".")[0] for path in SCHEMAS.iterdir()})


def _make_earlier(connection: sa.Connection, revision: str) -> None:
    statements = (SCHEMAS / f"{revision}.{connection.dialect.name}.sql").read_text().split(";\n")
    for statement in filter(str.strip, statements):
        connection.execute(sa.text(statement.replace(":", "\\:")))
    new_database._VERSION.create(connection)
    connection.execute(new_database._VERSION.insert().values(version_num=revision))


def test_an_upgrade_counts_the_closed_blocks_of_each_data_set(unmade: Store) -> None:
    sql = """
        INSERT INTO datasets (id, name, owner, grp, created) VALUES (1, 'a', 'o', 'g', 0), (2, 'b', 'o', 'g', 0);
        INSERT INTO blocks (id, dataset_id, name, created, open, files, events, size) VALUES
          (1, 1, 'x', 0, 0, 2, 9223372036854775807, 5), (2, 1, 'y', 0, 0, 3, 1, 6), (3, 1, 'z', 0, 1, 4, 2, 7)
    """
    with unmade.engine.begin() as connection:
        _make_earlier(connection, revisions.FIRST_REVISION)
        if unmade.name == "postgresql":
            new_database._create_partitions(connection)
        for statement in sql.split(";"):
            connection.execute(sa.text(statement))
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        counted = "SELECT closed_blocks, closed_files, closed_events, closed_size FROM datasets ORDER BY id"
        rows = [tuple(row) for row in connection.execute(sa.text(counted))]
    assert rows == [(2, 5, 2**63 - 1, 11), (0, 0, 0, 0)]


def test_an_upgrade_lets_parents_be_marked_and_decided_on_again(unmade: Store) -> None:
    """Their ends may have told no dependant."""
    sql = """
        INSERT INTO parent_submissions (submission_id, cursor, marked) VALUES (3, 41, 1), (4, 0, 0);
        INSERT INTO jobs (id, owner, submission_id, queue_id, state, user_priority, submitted, last_event) VALUES
          (41, 'o', 3, 1, 'Waiting', 1, 1, 1), (42, 'o', 3, 1, 'Done', 1, 1, 1), (43, 'o', 3, 1, 'Done', 1, 1, 1);
        INSERT INTO history (id, owner, grp, job_name, job_group, job_type, submission_id, queue_id, state,
          user_priority, epoch, attempt, failures, own_failures, finished_epoch, finished_digest, reason, submitted,
          ended, last_event, site, ce, hostname)
          VALUES (40, 'o', 'g', '', '', '', 3, 1, 'Killed', 1, 0, 0, 0, 0, 0, '', '', 1, 2, 1, '', '', '');
        INSERT INTO conditions (submission_id, job_id, number, condition, parent_job, parent_submission, outlook) VALUES
          (5, 0, 0, 'after_ok', 40, 0, 'never'), (5, 0, 1, 'after_ok', 41, 0, 'never'),
          (5, 0, 2, 'after_ok', 42, 0, 'open'), (5, 0, 3, 'after_ok', 43, 0, 'met'), (5, 0, 4, 'after', 0, 3, 'open')
    """
    with unmade.engine.begin() as connection:
        _make_earlier(connection, revisions.FIRST_REVISION)
        if unmade.name == "postgresql":
            new_database._create_partitions(connection)
        for statement in sql.split(";"):
            connection.execute(sa.text(statement))
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        parents = "SELECT submission_id, cursor, marked FROM parent_submissions ORDER BY 1"
        assert [tuple(row) for row in connection.execute(sa.text(parents))] == [(3, 0, 0), (4, 0, 0)]
        changes = "SELECT job_id, submission_id, state FROM parent_changes ORDER BY job_id"
        rows = [tuple(row) for row in connection.execute(sa.text(changes))]
    assert rows == [(40, 3, "Killed"), (41, 3, "Waiting"), (42, 3, "Done")]


def test_an_upgrade_corrects_attempts_that_never_began(unmade: Store) -> None:
    """The words of the release tell them. The use of all is added up again."""
    sql = """
        INSERT INTO instance (id, uuid, incarnation, alive_at, use_as_of) VALUES (1, 'u', 1, 90, 90);
        INSERT INTO events (id, at, kind, actor, old, new, detail, jobs) VALUES
          (7, 5, 'released', 'pilots', 'Running', 'Rescheduled', 'could not be started soon', '[[1,1,2,9],[2,3,2,9]]'),
          (8, 5, 'released', 'pilots', 'Running', 'Rescheduled', 'told to leave', '[[3,1,2,9]]');
        INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, owner, grp, site) VALUES
          (1, 1, 1, 9, 3, 5, 'released', 'o', 'g', 's'), (2, 2, 1, 9, 1, 2, 'released', 'o', 'g', 's'),
          (2, 3, 2, 9, 3, 5, 'released', 'o', 'g', 's'), (3, 1, 1, 9, 3, 5, 'released', 'o', 'g', 's'),
          (1, 2, 2, 9, 6, 8, 'applied', 'o', 'g', 's')
    """
    with unmade.engine.begin() as connection:
        _make_earlier(connection, revisions.FIRST_REVISION)
        if unmade.name == "postgresql":
            new_database._create_partitions(connection)
        for statement in sql.split(";"):
            connection.execute(sa.text(statement))
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        attempts = "SELECT job_id, epoch, started, ended, ahead FROM attempts ORDER BY 1, 2"
        rows = [tuple(row) for row in connection.execute(sa.text(attempts))]
        [as_of] = connection.execute(sa.text("SELECT use_as_of FROM instance")).one()
    assert rows == [(1, 1, 3, 3, 1), (1, 2, 6, 8, 0), (2, 2, 1, 2, 0), (2, 3, 3, 3, 1), (3, 1, 3, 5, 0)]
    assert as_of is None


def test_the_first_schema_has_its_file() -> None:
    assert EARLIER[0] == revisions.FIRST_REVISION
    assert set(EARLIER) <= revisions.known_revisions()


@pytest.mark.parametrize("revision", EARLIER)
def test_a_filled_database_of_each_earlier_schema_is_upgraded(unmade: Store, revision: str) -> None:
    with unmade.engine.begin() as connection:
        _make_earlier(connection, revision)
        if unmade.name == "postgresql":
            new_database._create_partitions(connection)
        known = sa.inspect(connection).get_table_names()
        # Columns of the tables as they were: a later revision may have others.
        reflected = sa.MetaData()
        tables = [
            sa.Table(name, reflected, autoload_with=connection)
            for name in metadata.tables
            if name in known and name not in ("count_changes", *WRITTEN_BY_UPGRADES)
        ]
        for table in tables:
            for row in (1, 2):
                connection.execute(table.insert().values({c.name: _value(c, row) for c in table.columns}))

    def rows() -> dict[str, list[tuple[Any, ...]]]:
        with unmade.engine.connect() as connection:
            return {
                table.name: [
                    tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key))
                ]
                for table in tables
            }

    before = rows()
    assert all(len(found) == 2 for found in before.values())
    upgrade(unmade.engine)
    assert current_revision(unmade.engine) == head_revision()
    assert rows() == before
    with unmade.engine.connect() as connection:
        options = {"compare_type": True, "include_object": is_schema_object}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


@pytest.mark.parametrize("revision", EARLIER)
def test_an_upgraded_database_has_the_tables_of_a_new_one(
    unmade: Store, revision: str, tmp_path: Path
) -> None:
    with unmade.engine.begin() as connection:
        _make_earlier(connection, revision)
    upgrade(unmade.engine)
    direct = STORES[unmade.name](tmp_path / "direct", False)
    metadata.create_all(direct.engine)
    read = {"sqlite": sqlite_tables, "postgresql": postgresql_catalogue}[unmade.name]
    made, meant = read(unmade.engine), read(direct.engine)
    direct.engine.dispose()
    direct.drop()
    assert made == meant


@pytest.mark.parametrize(("revision", "words"), [("9999", "newer version"), ("0046", "development version")])
def test_an_unknown_schema_is_refused_and_left_alone(store: Store, revision: str, words: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision}
        )
    with pytest.raises(Conflict, match=f"schema {revision}") as refused:
        upgrade(store.engine)
    assert words in f"{refused.value.message} {refused.value.hint}"
    assert current_revision(store.engine) == revision


def test_a_new_database_has_all_of_its_tables_or_none(unmade: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may die at any statement: the next one begins anew."""
    monkeypatch.setattr(new_database._VERSION, "create", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        upgrade(unmade.engine)
    assert sa.inspect(unmade.engine).get_table_names() == []
    monkeypatch.undo()
    upgrade(unmade.engine)
    assert current_revision(unmade.engine) == head_revision()


def test_an_upgrade_keeps_the_rows_of_every_table(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that fails."""
    tables = [table for table in metadata.tables.values() if table.name != "count_changes"]
    with store.engine.begin() as connection:
        for table in tables:
            connection.execute(table.delete())
            for row in (1, 2):
                connection.execute(table.insert().values({c.name: _value(c, row) for c in table.columns}))

    def rows() -> list[list[tuple[Any, ...]]]:
        with store.engine.connect() as connection:
            found = [connection.execute(sa.select(t).order_by(*t.primary_key.columns)).all() for t in tables]
        return [[tuple(row) for row in one] for one in found]

    before = rows()
    assert all(len(found) == 2 for found in before)
    with monkeypatch.context() as later:
        add_revision(later, tmp_path / "failing", "op.execute('no statement')")
        with pytest.raises(sa.exc.DatabaseError):
            upgrade(store.engine)
    assert current_revision(store.engine) == head_revision()
    add_revision(monkeypatch, tmp_path / "later")
    upgrade(store.engine)
    assert current_revision(store.engine) == head_revision() == LATER
    assert rows() == before
    assert "remark" in {column["name"] for column in sa.inspect(store.engine).get_columns("bans")}


def _value(column: sa.Column[Any], row: int) -> Any:
    if isinstance(column.type, sa.LargeBinary):
        return bytes([row])
    if isinstance(column.type, sa.Integer):
        return row
    if isinstance(column.type, sa.Float):
        return row / 4
    return f"{column.name} {row}"
