"""The options that select the database, shared by `up` and `db`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pilotage.cli.parser import CommandOption
from pilotage.core.errors import InvalidInput

HomeOption = Annotated[
    Path,
    CommandOption("Home folder of the server", "DIR", envvar="PILOTAGE_HOME", show_default="~/.pilotage"),
]
DatabaseOption = Annotated[
    Path | None,
    CommandOption(
        "SQLite file on a local disk; default: in the home folder", "FILE", envvar="PILOTAGE_DATABASE"
    ),
]
UrlOption = Annotated[
    str,
    CommandOption(
        "PostgreSQL database, postgresql://USER@HOST:PORT/DATABASE; a password only in the variable",
        "URL",
        envvar="PILOTAGE_DATABASE_URL",
    ),
]
PgBinOption = Annotated[
    Path | None,
    CommandOption("Folder of pg_dump and pg_restore; default: PATH", "DIR", envvar="PILOTAGE_PG_BIN"),
]
DEFAULT_HOME = Path("~/.pilotage")


def database_location(database: Path | None, url: str) -> str:
    """The selected database in the form that `Home.at` accepts; "" for the default."""
    if not url:
        return str(database) if database is not None else ""
    if database is not None:
        raise InvalidInput("--database and --database-url cannot be combined", hint="give one of them")
    from pilotage.store.postgresql.dsn import DatabaseAddress

    if DatabaseAddress.parse(url).has_password and any(url in word for word in sys.argv):
        raise InvalidInput(
            "a password on the command line can be read by everybody on this machine",
            hint="put it into PILOTAGE_DATABASE_URL or ~/.pgpass",
        )
    return url
