"""`pilotage db`: the database of a home."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
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
    file: Annotated[Path, CommandArgument("Target file; must not exist", "FILE")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pg_bin: PgBinOption = None,
) -> int:
    """Write a consistent copy of the database, also while the server runs. Sandboxes are not included."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url), pg_bin)
    size = owned.database.backup(file.expanduser().absolute())
    print(f"{file}: {size:,} bytes")
    return 0


def restore(
    file: Annotated[Path, CommandArgument("Backup file", "FILE")],
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pg_bin: PgBinOption = None,
) -> int:
    """Replace the database with a backup; the server must be stopped. The old database is kept under another name."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url), pg_bin)
    with locked(owned):
        restored, aside = owned.database.restore(file.expanduser().absolute(), timestamp())
    print(f"restored {file} as incarnation {restored.incarnation}; new ids begin above {restored.id_floor:,}")
    if aside:
        print(f"The previous database is kept as {aside}.")
    print("Jobs assigned since the backup run again; results of their earlier attempts are refused.")
    return 0


def upgrade(
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
) -> int:
    """Create or upgrade the tables; the server must be stopped. On SQLite, `up` does this at its start."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url))
    with locked(owned):
        before, now = owned.database.upgrade(owned.folder / "backups", timestamp())
    if before == now:
        print(f"{owned.database.shown} has schema {now} already")
    else:
        print(f"{owned.database.shown} has schema {now} now (before: {before or 'none'})")
    return 0


def check(
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pg_bin: PgBinOption = None,
    repair: Annotated[
        bool,
        CommandOption("Mend what can be mended, after a backup; all servers must be stopped"),
    ] = False,
) -> int:
    """Check the integrity of the database, also while the server runs. The exit code is 1 if it is damaged."""
    from pilotage.server.process.home import Home

    owned = Home.at(home, database_location(database, database_url), pg_bin)
    damage = owned.database.check()
    mendable = [kind for kind in damage if not kind.by_hand]
    if repair and mendable:
        with locked(owned):
            _repair(owned)
        damage = owned.database.check()
    for kind in damage:
        print(kind)
    if not damage:
        print(f"{owned.database.shown} is intact")
        return 0
    print(f"pilotage: {owned.database.shown} is damaged", file=sys.stderr)
    if mendable and not repair:
        print(
            "hint: stop all servers, then `pilotage db check --repair` mends it after a backup",
            file=sys.stderr,
        )
    return DAMAGED


def _repair(owned: Home) -> None:
    """Mend the database after a backup. Servers are kept from it meanwhile."""
    import secrets
    from random import SystemRandom

    from pilotage.services.repairs.run import mend_all
    from pilotage.store.writer.writer import Writer

    connection = owned.database.repairing()
    counters = owned.database.counters()
    writer = Writer(connection)
    writer.start()
    try:
        copy = (
            owned.folder
            / "backups"
            / f"before-repair-{timestamp()}.{'dump' if owned.database.file is None else 'db'}"
        )
        owned.database.backup(copy)
        print(f"{copy}: the database before the repair")
        for mended in mend_all(
            writer.call, clock=time.time, rng=SystemRandom(), secrets=secrets, counters=counters
        ):
            print(f"mended {mended.check.what}: {', '.join(map(str, mended.ids))}")
    finally:
        writer.stop()
        connection.close()
        if counters is not None:
            counters.close()


@contextmanager
def locked(home: Home) -> Generator[None, None, None]:
    """Keep servers from a home and its database meanwhile."""
    from pilotage.server.process.home import HomeLock

    home.make()
    lock = HomeLock(home)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def timestamp() -> str:
    return time.strftime("%Y%m%dT%H%M%S")
