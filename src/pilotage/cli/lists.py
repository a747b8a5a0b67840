"""`pilotage queue list`, `pilot list`, `site list`."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

import typer

from pilotage.cli.console import Column
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration, format_instant

LimitOption = Annotated[int, typer.Option("--limit", min=0, help="Maximum number of rows; 0 for all")]


@connected
def queues(session: Session, limit: LimitOption = 200) -> int | None:
    """List the task queues: waiting jobs of one owner and group with equal requirements."""
    with session.client() as client:
        found = list(islice(client.queues(), limit or None))
    if session.as_json:
        session.screen.json({"queues": found})
        return None
    noted = any(one.note for one in found)
    columns = (
        Column("id", right=True),
        Column("waiting", right=True),
        Column("priority", right=True),
        Column("owner"),
        Column("group"),
        Column("cpu", right=True),
        Column("memory", right=True),
        Column("cores", right=True),
        Column("sites"),
        Column("tags"),
        *([Column("note")] if noted else []),
    )
    rows = (
        (
            one.id,
            one.waiting,
            f"{one.priority:.4g}",
            one.owner,
            one.group,
            format_duration(one.cpu_time) if session.screen.terminal else one.cpu_time,
            f"{one.memory} MB" if session.screen.terminal else one.memory,
            one.processors,
            ",".join(one.sites) or "any",
            ",".join(one.tags),
            *([one.note] if noted else []),
        )
        for one in found
    )
    session.screen.table(columns, rows)
    return None


@connected
def pilots(
    session: Session,
    limit: LimitOption = 200,
    ended: Annotated[bool, typer.Option("--all", help="Include ended pilots")] = False,
) -> int | None:
    """List the live pilots."""
    with session.client() as client:
        live = (one for one in client.pilots() if ended or one.ended is None)
        found = list(islice(live, limit or None))
    if session.as_json:
        session.screen.json({"pilots": found})
        return None
    now, exact = time.time(), not session.screen.terminal
    columns = (
        Column("id", right=True),
        Column("state", state=True),
        Column("site"),
        Column("ce"),
        Column("batch id"),
        Column("node"),
        Column("cores", right=True),
        Column("jobs", right=True),
        Column("finished", right=True),
        Column("last seen"),
        Column("reason"),
    )
    rows = (
        (
            one.id,
            "Stalled" if one.stalled else one.state,
            one.site,
            one.ce,
            one.batch_id,
            one.hostname,
            one.processors,
            one.jobs,
            one.finished,
            format_instant(one.last_seen, now, exact=exact),
            one.reason,
        )
        for one in found
    )
    session.screen.table(columns, rows)
    return None


@connected
def sites(session: Session) -> int | None:
    """List the sites with their pilots and jobs."""
    with session.client() as client:
        found = client.sites()
    if session.as_json:
        session.screen.json({"sites": found})
        return None
    columns = (
        Column("site"),
        Column("ces"),
        Column("pilots"),
        Column("running", right=True),
        Column("waiting", right=True),
    )
    rows = (
        (
            one.name,
            ",".join(one.ces),
            ", ".join(f"{number} {state}" for state, number in sorted(one.pilots.items())),
            one.running,
            one.waiting,
        )
        for one in found
    )
    session.screen.table(columns, rows)
    return None
