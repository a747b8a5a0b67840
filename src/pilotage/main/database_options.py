"""The options that say which database is meant, alike for `up` and `db`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pilotage.core.errors import InvalidInput

HomeOption = Annotated[
    Path, typer.Option(envvar="PILOTAGE_HOME", help="Folder of the instance.", show_default="~/.pilotage")
]
DatabaseOption = Annotated[
    Path | None,
    typer.Option(envvar="PILOTAGE_DATABASE", help="SQLite file on a local disk; default: the home's own."),
]
UrlOption = Annotated[
    str,
    typer.Option(
        envvar="PILOTAGE_DATABASE_URL",
        help="PostgreSQL instead: postgresql://USER@HOST:PORT/DATABASE; with a password only as variable.",
    ),
]
PgBinOption = Annotated[
    Path | None,
    typer.Option(
        "--pg-bin", envvar="PILOTAGE_PG_BIN", help="Folder of pg_dump and pg_restore; default: PATH."
    ),
]
DEFAULT_HOME = Path("~/.pilotage")


def database_location(database: Path | None, url: str) -> str:
    """What was chosen, as `Home.at` takes it; empty: nothing."""
    if not url:
        return str(database) if database is not None else ""
    if database is not None:
        raise InvalidInput("two databases were named", hint="give --database or --database-url, not both")
    from pilotage.store.postgresql.dsn import DatabaseAddress

    if DatabaseAddress.parse(url).has_password and any(url in word for word in sys.argv):
        raise InvalidInput(
            "a password on the command line can be read by everybody on this machine",
            hint="leave it out there; it can be in PILOTAGE_DATABASE_URL or in ~/.pgpass",
        )
    return url
