"""`pilotage cost`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_duration
from pilotage.core.jobs.durations import format_hours

if TYPE_CHECKING:
    from pilotage.wire.costs import CostRow

NOBODY = "(nobody)"
"""Owner and group of time without a job in pilots that are bound to nobody."""


class By(StrEnum):
    CE = "ce"
    OWNER = "owner"
    GROUP = "group"
    MONTH = "month"


@connected
def cost(
    session: Session,
    ce: Annotated[str, CommandOption("Only this CE", "NAME")] = "",
    since: Annotated[str, CommandOption("Only the last SPAN, in whole hours: 1d, 12h", "SPAN")] = "",
    by: Annotated[By, CommandOption("Meaning of a row")] = By.CE,
) -> None:
    """Show where the core-hours of pilots went: payload, start-up, idle or lost.

    Payload: cores that jobs held, from their start until the server has their end.
    Start-up: from the start of the batch job to the pilot's first call.
    Idle: cores without a job. Lost: after the last sign of life of pilots that ended without a word.
    Administrators see everything, others their own jobs and pilots. Numbers for programs are core-seconds.
    """
    seconds = parse_duration(since) if since else None
    with session.client() as client:
        report = client.costs(ce=ce, since=seconds, by=by.value)
    if session.as_json:
        session.screen.json(report)
        return
    terminal = session.screen.terminal
    names = ("payload", "startup", "idle", "lost", "total", "efficiency")
    columns = (Column(by.value), *(Column(name, right=True) for name in names))
    rows = [_cells(row, terminal) for row in report.rows]
    if len(rows) > 1:
        rows.append(_cells(report.total, terminal, name="total"))
    session.screen.table(columns, rows)
    begin = format_instant(report.begin, time.time(), exact=not terminal)
    unit = "core-hours" if terminal else "core-seconds"
    session.screen.note(f"# {unit} since {begin}; efficiency: payload / total")


def _cells(row: CostRow, terminal: bool, name: str = "") -> Sequence[object]:
    amounts = (row.payload, row.startup, row.idle, row.lost, row.total)
    shown = [format_hours(amount) if terminal else f"{amount:.3f}" for amount in amounts]
    efficiency = "-" if row.efficiency is None else f"{row.efficiency:.1%}"
    return (name or row.name or NOBODY, *shown, efficiency)
