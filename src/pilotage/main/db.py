"""`pilotage db`: the database of a home."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.main.database_options import (
    DEFAULT_HOME,
    DatabaseOption,
    HomeOption,
    PgBinOption,
    UrlOption,
    database_location,
)

if TYPE_CHECKING:
    from pilotage.server.process.home import Home

DAMAGED = 1


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; must not exist.")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pg_bin: PgBinOption = None,
) -> int:
    """Copy the database, as of one instant, also while the server runs. Sandboxes are files: copy them besides."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url), pg_bin)
    size = owned.database.backup(file.expanduser().absolute())
    print(f"{file}: {size:,} bytes")
    return 0


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pg_bin: PgBinOption = None,
) -> int:
    """Put a backup in place of the database; the server must be stopped. The old database is kept beside it."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url), pg_bin)
    with _locked(owned):
        found, aside = owned.database.restore(file.expanduser().absolute(), _timestamp())
    print(f"restored {file} as incarnation {found.incarnation}; new ids begin above {found.id_floor:,}")
    if aside:
        print(f"What was there before is kept as {aside}.")
    print("Jobs that were given out since the backup run again; what their pilots report is refused.")
    return 0


def upgrade(
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
) -> int:
    """Make the tables, or bring them to this version; the server must be stopped. On SQLite `up` does it by itself."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url))
    with _locked(owned):
        before, now = owned.database.upgrade(owned.folder / "backups", _timestamp())
    if before == now:
        print(f"{owned.database.shown} has schema {now} already")
    else:
        print(f"{owned.database.shown} has schema {now} now (before: {before or 'none'})")
    return 0


def check(
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
) -> int:
    """Look for damage, also while the server runs. The exit code is 1 if there is some."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url))
    found = owned.database.check()
    for line in found:
        print(line)
    if found:
        print(f"pilotage: {owned.database.shown} is not as it must be", file=sys.stderr)
        return DAMAGED
    print(f"{owned.database.shown} is as it must be")
    return 0


@contextmanager
def _locked(home: Home) -> Generator[None, None, None]:
    from pilotage.server.process.home import HomeLock

    home.make()
    lock = HomeLock(home)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _timestamp() -> str:
    return time.strftime("%Y%m%dT%H%M%S")
