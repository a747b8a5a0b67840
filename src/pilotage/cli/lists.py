"""`pilotage queue list`, `pilot list`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import LimitOption, Session, connected
from pilotage.cli.time_format import format_duration, format_instant

if TYPE_CHECKING:
    from pilotage.wire.pool import PilotSummary

DEFAULT_ROWS = 200

PILOT_COLUMNS = (
    Column("id", right=True),
    Column("state", state=True),
    Column("site", rank=3),
    Column("ce"),
    Column("type", rank=5),
    Column("owner"),
    Column("batch id", rank=2),
    Column("node", rank=1),
    Column("cores", right=True, rank=4),
    Column("jobs", right=True),
    Column("finished", right=True, rank=6),
    Column("efficiency", right=True, rank=5),
    Column("last seen", rank=1),
    Column("reason", text=True),
)


@connected
def queues(session: Session, limit: LimitOption = None) -> None:
    """List the task queues: waiting jobs of one owner and group with equal requirements."""
    with session.client() as client:
        queues = session.screen.first_rows(client.queues(), limit, DEFAULT_ROWS)
    session.screen.json({"queues": queues})
    noted = any(queue.note for queue in queues)
    columns = (
        Column("id", right=True),
        Column("waiting", right=True),
        Column("priority", right=True),
        Column("owner"),
        Column("group", rank=1),
        Column("cpu", right=True, rank=2),
        Column("memory", right=True, rank=3),
        Column("cores", right=True, rank=3),
        Column("pilots", right=True),
        Column("sites", text=True),
        Column("tags", text=True, rank=4),
        *([Column("note", text=True)] if noted else []),
    )
    rows = (
        (
            queue.id,
            queue.waiting,
            f"{queue.priority:.4g}",
            queue.owner,
            queue.group,
            format_duration(queue.cpu_time) if session.screen.terminal else queue.cpu_time,
            f"{queue.memory} MB" if session.screen.terminal else queue.memory,
            queue.processors,
            f"{queue.pilots_waiting}+{queue.pilots_running}",
            ",".join(queue.sites) or "any",
            ",".join(queue.tags),
            *([queue.note] if noted else []),
        )
        for queue in queues
    )
    session.screen.table(columns, rows)


@connected
def pilots(
    session: Session,
    limit: LimitOption = None,
    ended: Annotated[bool, CommandOption("Include ended pilots", names="--all")] = False,
) -> None:
    """List the live pilots. Efficiency: the fraction of a pilot's core-seconds that its jobs held, as in `cost`.

    The owner is the one that the pilot serves; empty: it serves everybody, or you may not see it.
    """
    with session.client() as client:
        shown = (pilot for pilot in client.pilots() if ended or pilot.ended is None)
        pilots = session.screen.first_rows(shown, limit, DEFAULT_ROWS)
    session.screen.json({"pilots": pilots})
    now, exact = time.time(), not session.screen.terminal
    session.screen.table(PILOT_COLUMNS, (pilot_cells(pilot, now, exact=exact) for pilot in pilots))


def pilot_cells(pilot: PilotSummary, now: float, *, exact: bool) -> tuple[object, ...]:
    """One pilot in the columns of the list."""
    return (
        pilot.id,
        "Stalled" if pilot.stalled else pilot.state,
        pilot.site,
        pilot.ce,
        pilot.pilot_type,
        pilot.owner,
        pilot.batch_id,
        pilot.hostname,
        pilot.processors,
        pilot.jobs,
        pilot.finished,
        "" if pilot.efficiency is None else f"{pilot.efficiency:.1%}",
        format_instant(pilot.last_seen, now, exact=exact),
        pilot.reason,
    )
