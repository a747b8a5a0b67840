"""`pilotage trace`: whose jobs ran in a batch job, or on a node at some time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import parse_instant


@connected
def trace(
    session: Session,
    batch_id: Annotated[str, CommandOption("Id of a batch job, or of an array of them", "ID")] = "",
    node: Annotated[str, CommandOption("A node, as its pilots report it", "NAME")] = "",
    at: Annotated[str, CommandOption("Only jobs of this time: a date, or 2h for 2 hours ago", "TIME")] = "",
) -> int | None:
    """Tell whose jobs ran in a batch job, or on a node at some time (otherwise now): pilots, jobs, owners, groups."""
    now = time.time()
    with session.client() as client:
        answer = client.trace(batch_id=batch_id, node=node, at=parse_instant(at, now) if at else None)
    session.screen.json(answer)

    def instant(value: float | None) -> str:
        return session.screen.instant(value)

    screen = session.screen
    screen.table(
        _columns({"pilot": 0, "site": 2, "ce": 3, "batch id": 0, "node": 0, "state": 1, "from": 0, "to": 0}),
        (
            (
                *(pilot.pilot, pilot.site, pilot.ce, pilot.batch_id, pilot.node, pilot.state),
                *(instant(pilot.started), instant(pilot.ended)),
            )
            for pilot in answer.pilots
        ),
    )
    screen.line()
    screen.table(
        _columns(
            {"job": 0, "epoch": 2, "owner": 0, "group": 1, "pilot": 0, "from": 0, "to": 0, "outcome": 0}
        ),
        (
            (
                *(job.job, job.epoch, job.owner, job.group, job.pilot),
                *(instant(job.started), instant(job.ended), job.outcome or "running"),
            )
            for job in answer.jobs
        ),
    )
    if not answer.complete:
        screen.line("There are more jobs: name a time with --at.")
    return None


def _columns(ranks: Mapping[str, int]) -> list[Column]:
    return [Column(name, rank=rank) for name, rank in ranks.items()]
