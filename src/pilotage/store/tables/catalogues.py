"""How outside catalogues answer."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.rows import columns, replacement, values


class CatalogueRow(NamedTuple):
    name: str
    asked: float
    """When it was last asked."""
    answered: float | None
    """When it last answered; None: never."""
    software: str
    """Its software, version and account."""
    problem: str
    """Why it does not serve; empty: it does."""
    since: float
    """Since when it serves, or has this problem."""


_COLUMNS = columns(CatalogueRow)
_SAVE = replacement("catalogues", "name", _COLUMNS.split(", ")[1:])


def by_name(connection: Connection) -> dict[str, CatalogueRow]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM catalogues ORDER BY name")
    return {row[0]: CatalogueRow(*row) for row in rows}


def save(connection: Connection, row: CatalogueRow) -> None:
    connection.execute(_SAVE, values(row))
