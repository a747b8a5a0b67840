"""The revisions of the schema that this version knows. Migrations are one line."""

from __future__ import annotations

import importlib.resources
from importlib.resources.abc import Traversable
from typing import Final

from pilotage.core.errors import Conflict

VERSION_TABLE: Final = "alembic_version"
READ_REVISION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
"""The query for the revision of a database."""

FIRST_REVISION: Final = "0050"
"""Earlier ones were of development versions before the first release."""


def migrations() -> Traversable:
    """The folder of Alembic's environment."""
    return importlib.resources.files("pilotage.store") / "migrations"


def head_revision() -> str:
    """The newest revision of this version."""
    return max(known_revisions())


def known_revisions() -> set[str]:
    """Files of migrations begin with their revisions."""
    names = (file.name for file in (migrations() / "versions").iterdir())
    return {name[1:5] for name in names if name.startswith("v0")}


def refuse_unknown(revision: str | None) -> None:
    """Raise `Conflict` for a revision that this version does not know."""
    if revision is None or revision in known_revisions():
        return
    if revision < FIRST_REVISION:
        raise Conflict(
            f"the database has schema {revision} of a development version before 0.1.0, which cannot be upgraded",
            hint="begin with a new home or database; this one stays as it is",
        )
    raise Conflict(
        f"the database has schema {revision}, which this version of Pilotage does not know",
        hint="it was written by a newer version: install that one, or restore the backup made before the upgrade",
    )
