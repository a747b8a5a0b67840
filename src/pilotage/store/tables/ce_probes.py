"""The last probe of each CE, as `pilotage ce test` asked for it."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.ids import PilotId
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import ONE_SERVER, decision
from pilotage.store.engine.rows import columns


class CeProbeRow(NamedTuple):
    """A probe. Its progress stands in the rows of its pilot and its submission."""

    ce: str
    number: int
    requested: float
    requested_by: str
    pilot: PilotId | None
    """None: the director has not stored its intent yet."""
    checks: str
    """JSON of the probe's findings; empty: it has not reported."""


_COLUMNS = columns(CeProbeRow)


@decision(ONE_SERVER)
def of_ce(connection: Connection, ce: str) -> CeProbeRow | None:
    """The last probe of a CE."""
    values = connection.execute(f"SELECT {_COLUMNS} FROM ce_probes WHERE ce = ?", (ce,)).fetchone()
    return None if values is None else CeProbeRow(*values)


def replace(connection: Connection, ce: str, number: int, *, by: str, now: float) -> None:
    """Request a new probe of a CE in place of the last one."""
    connection.execute("DELETE FROM ce_probes WHERE ce = ?", (ce,))
    connection.execute(
        "INSERT INTO ce_probes (ce, number, requested, requested_by) VALUES (?, ?, ?, ?)",
        (ce, number, now, by),
    )


def set_pilot(connection: Connection, ce: str, pilot: PilotId) -> None:
    connection.execute("UPDATE ce_probes SET pilot = ? WHERE ce = ?", (pilot, ce))


def set_checks(connection: Connection, pilot: PilotId, checks: str) -> None:
    """Store the findings of a probe; nothing if a later probe has replaced it."""
    connection.execute("UPDATE ce_probes SET checks = ? WHERE pilot = ?", (checks, pilot))
