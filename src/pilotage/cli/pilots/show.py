"""`pilotage pilot show`: the facts of one pilot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration

if TYPE_CHECKING:
    from pilotage.wire.pool import PilotSummary

PilotArgument = Annotated[int, CommandArgument("Pilot id", "ID", min=1)]

ORDERS = {
    "drain": "told to leave after its jobs",
    "cancel": "told to leave",
    "kill": "killed",
    "share": "told to leave: it is another owner's turn",
}


def efficiency_of(row: PilotSummary) -> str:
    """The fraction of the booked core-seconds that jobs held; empty: nothing is booked."""
    if row.efficiency is None:
        return ""
    hours = row.core_seconds / 3600
    return f"{row.efficiency:.1%} of {hours:,.4g} core-h"


@connected
def show(session: Session, pilot: PilotArgument) -> int | None:
    """Show one pilot: where it runs, its batch job, its jobs, and why it ended."""
    with session.client() as client:
        detail = client.pilot(pilot)
    session.screen.json(detail)
    row, now, instant = detail.pilot, time.time(), session.screen.instant
    gone = "" if detail.queue_exists else " (it has gone)"
    life = None if row.started is None else (now if row.ended is None else row.ended) - row.started
    session.screen.facts(
        (
            ("pilot", row.id),
            ("state", "Stalled" if row.stalled else row.state),
            ("reason", row.reason),
            ("order", "" if row.ended is not None else ORDERS.get(detail.order, detail.order)),
            ("site", row.site),
            ("CE", row.ce),
            ("batch id", row.batch_id),
            ("stamp", detail.stamp),
            ("node", row.hostname),
            ("cores", row.processors),
            ("owner", row.owner),
            ("type", detail.pilot_type),
            ("submitted for queue", "" if detail.queue is None else f"{detail.queue}{gone}"),
            ("version", row.version),
            ("submitted", instant(row.submitted)),
            ("first call", instant(row.started)),
            ("last seen", instant(row.last_seen)),
            ("lease until", instant(detail.lease_until)),
            ("ended", instant(row.ended)),
            ("life", "" if life is None else format_duration(max(0.0, life))),
            ("jobs finished", row.finished),
            ("efficiency", efficiency_of(row)),
            ("jobs now", ",".join(map(str, detail.job_ids)) or row.jobs),
        )
    )
    return None
