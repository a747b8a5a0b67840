"""Storage places that pilots of a site were given, now or earlier."""

from __future__ import annotations

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import hint


def insert_new(connection: Connection, site: str, path: str) -> None:
    """Store a place, unless it is there."""
    connection.execute(
        "INSERT INTO storage_places (site, path) VALUES (?, ?) ON CONFLICT (site, path) DO NOTHING",
        (site, path),
    )


@hint("places are only added")
def of_site(connection: Connection, site: str) -> list[str]:
    """The paths of all places of a site, sorted."""
    sql = "SELECT path FROM storage_places WHERE site = ? ORDER BY path"
    return [row[0] for row in connection.execute(sql, (site,))]
