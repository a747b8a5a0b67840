"""Backup and restore of an embedded database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from pilotage.core.errors import DatabaseDamaged, InvalidInput, PilotageError
from pilotage.store.admin.revisions import READ_REVISION, refuse_unknown
from pilotage.store.engine.damage import RESTORE, UNREADABLE, refuse_unusable
from pilotage.store.engine.sqlite import SqliteConnection, quick_check
from pilotage.store.tables import instance

ID_MARGIN = 1_000
"""Ids left out after a restore when the database that is replaced can still be read."""
UNKNOWN_ID_MARGIN = 1_000_000
"""Ids left out when it cannot: more than are given between two backups of a large instance."""


def create_backup(database: Path, target: Path) -> int:
    """Copy a database whole, as of one instant, also while a server writes it; the bytes copied.

    The reader is read-only and never checkpoints.
    """
    if target.exists():
        raise InvalidInput(f"{target} exists already", hint="choose another name for the backup")
    if not database.exists():
        raise InvalidInput(f"there is no database {database}")
    partial = target.with_name(target.name + ".partial")
    # The database says of a file that it cannot make only that it cannot open it: the system says why.
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with closing(_connect_read_only(database)) as source, closing(sqlite3.connect(partial)) as copy:
            source.backup(copy)
            # Pages are copied as they are: a damaged copy would be found out when it is needed.
            damage = quick_check(copy)
        if damage != "ok":
            partial.unlink()
            raise DatabaseDamaged(f"{database} is damaged, and was not copied: {damage}", hint=RESTORE)
        _fsync(partial)
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise InvalidInput(f"the backup {target} cannot be written: {error.strerror}") from None
    except UNREADABLE as error:
        partial.unlink(missing_ok=True)
        raise DatabaseDamaged(f"{database} cannot be copied to {target}: {error}", hint=RESTORE) from None
    return target.stat().st_size


def restore(backup: Path, database: Path, aside: Path) -> instance.Instance:
    """Put `backup` in the place of `database`, which is kept as `aside`. No server may have it open.

    The incarnation is raised above both, so that pilots' messages about lost work are superseded. New ids start above
    all ids ever given.
    """
    if not backup.exists():
        raise InvalidInput(f"there is no file {backup}")
    partial = database.with_name(database.name + ".restored")
    _copy(backup, partial)
    known, highest = _read_instance(partial)
    if known is None:
        partial.unlink()
        raise InvalidInput(f"{backup} is no Pilotage database")
    try:
        with refuse_unusable(backup):
            refuse_unknown(_revision(partial))
    except PilotageError:
        partial.unlink()
        raise
    lost, lost_highest = _read_instance(database)
    same = lost is not None and lost.uuid == known.uuid
    floor = max(highest + (ID_MARGIN if same else UNKNOWN_ID_MARGIN), lost_highest + ID_MARGIN)
    incarnation = max(known.incarnation, lost.incarnation if lost else 0) + 1
    with closing(sqlite3.connect(partial, factory=SqliteConnection)) as connection, connection:
        instance.begin_incarnation(connection, incarnation, floor)
    _fsync(partial)
    for suffix in ("", "-wal", "-shm"):
        old = database.with_name(database.name + suffix)
        if old.exists():
            old.replace(aside.with_name(aside.name + suffix))
    partial.replace(database)
    return instance.Instance(known.uuid, incarnation, known.alive_at, floor)


def _copy(backup: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        with closing(_connect_read_only(backup)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            ok = quick_check(copy) == "ok"
    except UNREADABLE as error:
        target.unlink(missing_ok=True)
        raise InvalidInput(f"{backup} is no database: {error}") from None
    target.chmod(0o600)
    if not ok:
        target.unlink()
        raise InvalidInput(f"{backup} is damaged")


def _connect_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _read_instance(database: Path) -> tuple[instance.Instance | None, int]:
    """(instance, highest id) of a database; (None, 0) where it cannot be read."""
    if not database.exists():
        return None, 0
    try:
        with closing(sqlite3.connect(database, factory=SqliteConnection)) as connection:
            return instance.load(connection), instance.highest_id(connection)
    except UNREADABLE:
        return None, 0


def _revision(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return str(connection.execute(READ_REVISION).fetchone()[0])


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
