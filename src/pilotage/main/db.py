"""`pilotage db`: backup and restore of the database of a home."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path, typer.Option(envvar="PILOTAGE_HOME", help="Folder of the instance.", show_default="~/.pilotage")
]
DatabaseOption = Annotated[
    Path | None, typer.Option(envvar="PILOTAGE_DATABASE", help="SQLite file; default: the home's own.")
]
DEFAULT_HOME = Path("~/.pilotage")


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; must not exist.")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
) -> int:
    """Copy the database, as of one instant, also while the server runs. Sandboxes are files: copy them besides."""
    from pilotage.server.home import Home
    from pilotage.store.copies import take

    size = take(Home.at(home, database).database, file.expanduser().absolute())
    print(f"{file}: {size:,} bytes")
    return 0


def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
) -> int:
    """Put a backup in place of the database; the server must be stopped. The old database is kept beside it."""
    from pilotage.server.home import Home, HomeLock
    from pilotage.store.copies import restore as put_back

    owned = Home.at(home, database)
    place = owned.database
    owned.make()
    lock = HomeLock(owned)
    lock.acquire()
    try:
        aside = place.with_name(f"{place.name}.before-restore-{time.strftime('%Y%m%dT%H%M%S')}")
        found = put_back(file.expanduser().absolute(), place, aside)
    finally:
        lock.release()
    print(f"restored {file} as incarnation {found.incarnation}; new ids begin above {found.id_floor:,}")
    print("Jobs that were given out since the backup run again; what their pilots report is refused.")
    return 0
