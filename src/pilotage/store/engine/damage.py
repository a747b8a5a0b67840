"""Errors of the embedded database that say that its file is damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from pilotage.core.errors import DatabaseDamaged, PilotageError

RESTORE: Final = "stop the server and put a backup in its place: `pilotage db restore FILE`"
_RIGHTS: Final = f"check the rights of its file and folder; else {RESTORE}"
_HINTS: Final = {
    sqlite3.SQLITE_CORRUPT: RESTORE,
    sqlite3.SQLITE_NOTADB: RESTORE,
    sqlite3.SQLITE_READONLY: _RIGHTS,
    sqlite3.SQLITE_CANTOPEN: _RIGHTS,
}
_CHECK: Final = f"if `pilotage db check` says that its file is damaged: {RESTORE}; otherwise please report it"
UNREADABLE: Final = (sqlite3.DatabaseError, sa.exc.DatabaseError, UnicodeDecodeError)
"""Errors that the driver raises where a file is damaged; the last one where a message quotes the file."""


@contextmanager
def refuse_unusable(path: Path) -> Generator[None, None, None]:
    """Say of a file that cannot be read as a database that it is none."""
    try:
        yield
    except UNREADABLE as error:
        said = getattr(error, "orig", error)
        raise DatabaseDamaged(f"{path} is no usable database: {said}", hint=RESTORE) from None


def damage_of(error: BaseException) -> DatabaseDamaged | None:
    """The error for a person, if this error or one of its causes comes of a damaged file; None for errors of ours."""
    if isinstance(error, PilotageError):
        return None
    causes: list[BaseException] = []
    cause: BaseException | None = error
    # An error may be its own cause.
    while cause is not None and cause not in causes:
        causes.append(cause)
        if isinstance(cause, sqlite3.DatabaseError):
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
            if code in _HINTS:
                return DatabaseDamaged(f"the database cannot be used: {cause}", hint=_HINTS[code])
            if str(cause).startswith("no such "):
                return DatabaseDamaged(f"the database lacks a part: {cause}", hint=_CHECK)
        # SQLAlchemy keeps the error of the driver as `orig`.
        cause = getattr(cause, "orig", None) or cause.__cause__
    return None
