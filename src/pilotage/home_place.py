"""Where a server's home is, so that a copy of a home is found out before it touches the jobs of the original.

`instance.json` in the home stores the folder, its device and its inode. A home that was moved, is mounted at another
place too, or is reached by a symbolic link is the same folder. A copy is another folder, beside the original.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from pilotage.core.errors import Conflict

INSTANCE = "instance.json"
DATABASE = "pilotage.db"
"""The database of a home, unless it is elsewhere."""


class HomePlace(NamedTuple):
    """A folder, as `instance.json` stores it."""

    folder: str
    device: int
    inode: int

    @classmethod
    def of(cls, folder: Path) -> HomePlace:
        status = folder.stat()
        return cls(str(folder), status.st_dev, status.st_ino)


def original_of(home: Path) -> Path | None:
    """The home of which `home` is a copy; None: it is no copy, or no home of a server."""
    facts = _facts(home)
    try:
        here = home.stat()
    except OSError:
        return None
    if not facts or (facts.get("device"), facts.get("inode")) == (here.st_dev, here.st_ino):
        return None
    recorded = _recorded_folder(facts)
    if recorded is None or _facts(recorded).get("uuid") != facts.get("uuid"):
        return None  # moved to another disk, or restored at another place: there is no original
    # Devices get other numbers when a machine starts: the same folder is no copy.
    return None if os.path.samestat(here, recorded.stat()) else recorded


def refuse_copy(home: Path) -> None:
    """Raise Conflict if the folder is a copy of a server's home. Each program that opens a home calls this first."""
    home = home.expanduser().absolute()
    original = original_of(home)
    if original is not None:
        raise Conflict(
            f"{home} is a copy of the home {original}, whose jobs and pilots it would touch",
            hint=f"`pilotage home adopt --home {home}` makes it a home of its own, or use --home {original}",
        )


def _recorded_folder(facts: dict[str, Any]) -> Path | None:
    """The folder that a home stores as its own. Earlier versions stored it as that of the database only."""
    folder, database = facts.get("folder"), facts.get("database")
    if isinstance(folder, str) and folder:
        return Path(folder)
    if isinstance(database, str) and database.startswith("/") and Path(database).name == DATABASE:
        return Path(database).parent
    return None


def _facts(home: Path) -> dict[str, Any]:
    """The content of `instance.json`; empty if it is missing, or damaged: its reader says so."""
    try:
        facts = json.loads((home / INSTANCE).read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
