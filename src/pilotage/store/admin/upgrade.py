"""Bring a database to this version's schema. Run by `up` on a home of its own, after a backup, or by command."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from pilotage.store.admin.new_database import create_tables
from pilotage.store.admin.revisions import (
    READ_REVISION,
    VERSION_TABLE,
    head_revision,
    migrations,
    refuse_unknown,
)
from pilotage.store.admin.sqlite_backup import create_backup
from pilotage.store.engine.damage import refuse_unusable
from pilotage.store.engine.sqlite import SqliteConnection, open_writer, set_page_size

if TYPE_CHECKING:
    from alembic.config import Config


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations()))
    config.set_main_option("path_separator", "os")
    return config


def sqlite_engine(path: Path) -> sa.Engine:
    """For migrations only: everything else goes through the writer and the readers."""
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    sa.event.listen(engine, "connect", lambda connection, _: set_page_size(connection))
    return engine


def current_revision(engine: sa.Engine) -> str | None:
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table(VERSION_TABLE):
            return None
        revision: str | None = connection.scalar(sa.text(READ_REVISION))
        return revision


def upgrade(engine: sa.Engine) -> None:
    """Make the tables of a new database, or run the missing migrations of another one.

    Raises `Conflict` for a schema that this version does not know. The database is left alone.
    """
    revision, head = current_revision(engine), head_revision()
    if revision == head:
        return
    refuse_unknown(revision)
    if revision is None:
        with _one_transaction(engine) as connection:
            create_tables(connection, head)
        return
    # Imported here: most starts have nothing to migrate.
    from alembic import command

    config = _config()
    with _one_transaction(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def _one_transaction(engine: sa.Engine) -> Generator[sa.Connection, None, None]:
    """All changes, or none if one fails or the process dies."""
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            # Python's driver begins no transaction before a CREATE or ALTER.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


def open_database(path: Path, backups: Path, stamp: str) -> SqliteConnection:
    """The writing connection of an embedded database, made or upgraded first; before an upgrade it is copied.

    `stamp` names the backup. Raises `DatabaseDamaged` for a file that is none, `Conflict` for an unknown schema.
    """
    engine = sqlite_engine(path)
    try:
        with refuse_unusable(path):
            revision = current_revision(engine) if path.exists() else None
            refuse_unknown(revision)
            if revision not in (None, head_revision()):
                create_backup(path, backups / f"before-{head_revision()}-{stamp}.db")
            upgrade(engine)
    finally:
        engine.dispose()
    path.chmod(0o600)
    return open_writer(path)
