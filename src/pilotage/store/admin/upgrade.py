"""Bring a database to this version's schema. Run by `up` on a home of its own, after a backup, or by command."""

from __future__ import annotations

import importlib.resources
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.store.admin.sqlite_backup import create_backup
from pilotage.store.engine.sqlite import SqliteConnection, open_writer, set_page_size

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "alembic_version"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(importlib.resources.files("pilotage.store") / "migrations"))
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
        revision: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))
        return revision


def head_revision() -> str:
    """The newest revision of this version: migrations are one line, and their files begin with their numbers."""
    versions = importlib.resources.files("pilotage.store") / "migrations" / "versions"
    return max(file.name[1:5] for file in versions.iterdir() if file.name.startswith("v0"))


def refuse_newer(revision: str | None) -> None:
    """Raise `Conflict` for a revision that this version does not know."""
    if revision in (None, head_revision()):
        return
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise Conflict(
            f"the database has schema {revision}, which this version of Pilotage does not know",
            hint="it was written by a newer version: install that one, or restore the backup made before the upgrade",
        )


def upgrade(engine: sa.Engine, to: str = "head") -> None:
    """Run the missing migrations, up to the revision `to`.

    Raises `Conflict` for a database of a newer Pilotage: a downgrade would lose its data.
    """
    revision = current_revision(engine)
    if to == "head" and revision == head_revision():
        return
    # Imported here: most starts have nothing to migrate.
    from alembic import command

    config = _config()
    refuse_newer(revision)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, to)


@contextmanager
def refuse_unusable(path: Path) -> Generator[None, None, None]:
    """Say of a file that cannot be read as a database that it is none."""
    try:
        yield
    except (sqlite3.DatabaseError, sa.exc.DatabaseError) as error:
        raise InvalidInput(f"{path} is no usable database: {error}", hint="restore a backup") from None


def open_database(path: Path, backups: Path, stamp: str) -> SqliteConnection:
    """The writing connection of an embedded database, made or upgraded first; before an upgrade it is copied.

    `stamp` names the backup. Raises `InvalidInput` for a file that is no database, `Conflict` for a newer schema.
    """
    engine = sqlite_engine(path)
    try:
        with refuse_unusable(path):
            if path.exists() and current_revision(engine) not in (None, head_revision()):
                create_backup(path, backups / f"before-{head_revision()}-{stamp}.db")
            upgrade(engine)
    finally:
        engine.dispose()
    path.chmod(0o600)
    return open_writer(path)
