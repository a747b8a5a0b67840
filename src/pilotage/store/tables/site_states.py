"""Sites that an administrator has drained or taken down. A normal site has no row."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.sites import SiteState
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import guarded, hint, overwrites
from pilotage.store.engine.rows import columns


class SiteStateRow(NamedTuple):
    site: str
    state: SiteState
    changed_by: str
    reason: str
    since: float
    until: float | None = None
    """When the site becomes normal by itself; None: never."""

    @property
    def text(self) -> str:
        """One line for people. It has no instant, since it is compared to find changes."""
        word = "is down" if self.state is SiteState.DOWN else "is drained"
        return f"site {self.site} {word}, set by {self.changed_by}" + (
            f": {self.reason}" if self.reason else ""
        )


_COLUMNS = columns(SiteStateRow)


@hint("a later change has a change row, and is read again")
def load(connection: Connection) -> dict[str, SiteStateRow]:
    """The sites that are not normal, by name."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM site_states ORDER BY site")
    return {
        site: SiteStateRow(site, SiteState(state), by, reason, since, until)
        for site, state, by, reason, since, until in rows
    }


def save(connection: Connection, row: SiteStateRow) -> None:
    """Insert or replace the row of a site."""
    connection.execute(
        "INSERT INTO site_states (site, state, changed_by, reason, since, until) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (site) DO UPDATE SET state = excluded.state, changed_by = excluded.changed_by,"
        " reason = excluded.reason, since = excluded.since, until = excluded.until",
        (row.site, str(row.state), row.changed_by, row.reason, row.since, row.until),
    )


@overwrites("the last decision of a person counts")
def delete(connection: Connection, site: str) -> None:
    connection.execute("DELETE FROM site_states WHERE site = ?", (site,))


@guarded("until")
def delete_if_over(connection: Connection, site: str, now: float) -> bool:
    """Make a site normal whose time is over by its row. False: it is normal already, or has another end now."""
    return (
        connection.execute("DELETE FROM site_states WHERE site = ? AND until <= ?", (site, now)).rowcount == 1
    )
