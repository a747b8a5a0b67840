"""How long pilots have waited in batch systems."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.rows import columns
from pilotage.store.tables.ces import RECENT_PILOTS


class PilotWait(NamedTuple):
    """The wait of one pilot."""

    ce: str
    submitted: float
    started: float | None
    """None: it still waits."""


_PILOT_WAIT = columns(PilotWait)


def recent_waits(connection: Connection, most: int = RECENT_PILOTS) -> list[PilotWait]:
    """The waits among the last `most` pilots of all CEs, newest first; not of pilots that ended before their start.

    One query by the primary key serves all CEs.
    """
    sql = (
        f"SELECT {_PILOT_WAIT} FROM (SELECT id, ce, submitted, started, ended FROM pilots"
        " ORDER BY id DESC LIMIT ?) AS recent WHERE started IS NOT NULL OR ended IS NULL ORDER BY id DESC"
    )
    return [PilotWait(*row) for row in connection.execute(sql, (most,))]
