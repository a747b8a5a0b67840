"""`pilotage home`: the home folder of a server."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.plurals import plural
from pilotage.main.database_options import DEFAULT_HOME, HomeOption
from pilotage.main.db import locked, timestamp

if TYPE_CHECKING:
    from pilotage.server.process.home import Home

OF_THE_OTHER = ("server.json", "listen.json", "token", "secrets", "ssh")
"""Address, keys and connections of the original's server."""


def adopt(home: HomeOption = DEFAULT_HOME) -> int:
    """Make a copied home a home of its own, with its own database and a new instance. The original is not touched.

    Pilots of the original are none of the copy: jobs that they had in the copied database wait again. Tokens of the
    original are not valid in the copy.
    """
    from pilotage.home_place import DATABASE, original_of
    from pilotage.server.process.home import Home

    folder = home.expanduser().absolute()
    original = original_of(folder)
    if original is None:
        raise Conflict(
            f"{folder} is no copy of another home of this machine", hint="name the copy with --home"
        )
    source = Home.copied_at(folder)
    if source.database.file is None:
        raise InvalidInput(
            f"the database of {original} is on PostgreSQL, and a copied folder has none of its own",
            hint="restore a backup into an empty database, with a new home: `pilotage db restore BACKUP --home NEW"
            " --database-url URL`",
        )
    owned = Home.copied_at(folder, str(folder / DATABASE))
    with locked(owned):
        _give_database(owned, source, original)
        pilots, uuid = _make_anew(owned)
        for name in OF_THE_OTHER:
            _remove(folder / name)
        # At the very end: until then the folder is a copy, which can be adopted again.
        owned.become(uuid)
    print(f"{folder} is a home of its own now, instance {uuid}")
    if pilots:
        print(f"Jobs of {plural(pilots, 'pilot')} of {original} wait again here; they also run there.")
    return 0


def _give_database(owned: Home, source: Home, original: Path) -> None:
    """Put a whole database into the home: its own, or a copy of the original's."""
    file = owned.database.file
    assert file is not None
    if file.exists():
        if not any(damage.by_hand for damage in owned.database.check()):
            return
        raise InvalidInput(
            f"{file} was copied while a server wrote it, and is damaged",
            hint=f"put a whole one in its place: remove {file}*, then `pilotage db backup {file} --home {original}`",
        )
    source.database.backup(file)


def _make_anew(owned: Home) -> tuple[int, str]:
    """Give the database a new instance; the number of pilots that it had, and the instance."""
    import secrets
    import uuid
    from random import SystemRandom

    from pilotage.services.repairs.adoption import adopt_database
    from pilotage.store.writer.writer import Writer

    connection = owned.database.open(owned.folder / "backups", timestamp())
    writer, fresh = Writer(connection), str(uuid.uuid4())
    writer.start()
    try:
        pilots = adopt_database(writer.call, fresh, clock=time.time, rng=SystemRandom(), secrets=secrets)
    finally:
        writer.stop()
        connection.close()
    return pilots, fresh


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
