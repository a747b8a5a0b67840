"""Bans of users from sites, in force and ended."""

from __future__ import annotations

import json
from typing import NamedTuple

from pilotage.core.ids import JobId, PilotId
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import ONE_SERVER, guarded, hint, overwrites
from pilotage.store.engine.rows import columns


class BanRow(NamedTuple):
    """One ban of one user."""

    id: int
    owner: str
    site: str
    """Empty: all sites."""
    banned_by: str
    reason: str
    since: float
    until: float | None
    """None: until it is lifted."""
    ended: float | None = None
    ended_by: str = ""
    enforced: float | None = None
    """When it was certain that no running job of the owner is left there; None: some may be."""

    @property
    def sentence(self) -> str:
        """The reason for jobs and pilots that it ends."""
        place = f"from site {self.site}" if self.site else "from all sites"
        because = f": {self.reason}" if self.reason else ""
        return f"{self.owner} was banned {place} by {self.banned_by}{because}"


_COLUMNS = columns(BanRow)


@hint("a later change has a change row, and is read again")
def in_force(connection: Connection) -> list[BanRow]:
    """The bans that have not ended, oldest first."""
    sql = f"SELECT {_COLUMNS} FROM bans WHERE ended IS NULL ORDER BY id"
    return [BanRow(*row) for row in connection.execute(sql)]


def recent(connection: Connection, most: int) -> list[BanRow]:
    """The last bans, ended ones included, newest first."""
    sql = f"SELECT {_COLUMNS} FROM bans ORDER BY id DESC LIMIT ?"
    return [BanRow(*row) for row in connection.execute(sql, (most,))]


@hint("a name stays known while its submissions are kept")
def has_submitted(connection: Connection, owner: str) -> bool:
    """Whether there is a submission of this owner."""
    sql = "SELECT 1 FROM submissions WHERE owner = ? LIMIT 1"
    return connection.execute(sql, (owner,)).fetchone() is not None


def insert(
    connection: Connection, *, owner: str, site: str, by: str, reason: str, now: float, until: float | None
) -> None:
    """Ban a user from a site; replaces the facts of a ban in force."""
    connection.execute(
        "INSERT INTO bans (owner, site, banned_by, reason, since, until) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (owner, site) WHERE ended IS NULL DO UPDATE SET banned_by = excluded.banned_by,"
        " reason = excluded.reason, until = excluded.until, enforced = NULL",
        (owner, site, by, reason, now, until),
    )


@guarded("ended")
def end(connection: Connection, ban: int, *, by: str, now: float) -> bool:
    """End a ban. False: it has ended already."""
    sql = "UPDATE bans SET ended = ?, ended_by = ? WHERE id = ? AND ended IS NULL"
    return connection.execute(sql, (now, by, ban)).rowcount == 1


@guarded("ended", "until")
def end_if_over(connection: Connection, ban: int, *, by: str, now: float) -> bool:
    """End a ban whose time is over by its row. False: it has ended already, or was given more time."""
    sql = "UPDATE bans SET ended = ?, ended_by = ? WHERE id = ? AND ended IS NULL AND until <= ?"
    return connection.execute(sql, (now, by, ban, now)).rowcount == 1


@overwrites(ONE_SERVER)
def set_enforced(connection: Connection, ban: int, now: float) -> None:
    """Store that no running job of the owner is left there."""
    connection.execute("UPDATE bans SET enforced = ? WHERE id = ?", (now, ban))


@hint("each pilot is locked and looked at again")
def pilots_bound_to(connection: Connection, owner: str, site: str, most: int) -> list[PilotId]:
    """Live pilots that are bound to a user and have no order to leave. `site`: of this site only; empty: of all."""
    sql = (
        "SELECT id FROM pilots WHERE ended IS NULL AND leave = ''"
        " AND (only_owner = ? OR (pilot_type = 'private' AND owner = ?))"
        + (" AND site = ?" if site else "")
        + " ORDER BY id LIMIT ?"
    )
    values = (owner, owner, *((site,) if site else ()), most)
    return [PilotId(row[0]) for row in connection.execute(sql, values)]


@hint("each job is locked and looked at again")
def jobs_of_live_pilots(connection: Connection, site: str) -> list[JobId]:
    """The jobs that live pilots have, and maybe jobs that they had. `site`: of this site only; empty: of all."""
    sql = "SELECT jobs FROM pilots WHERE ended IS NULL AND jobs <> '[]'"
    rows = connection.execute(sql + (" AND site = ?" if site else ""), (site,) if site else ())
    return sorted({JobId(job) for row in rows for job in json.loads(row[0])})
