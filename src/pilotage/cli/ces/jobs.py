"""`pilotage ce jobs`."""

from __future__ import annotations

import time

from pilotage.cli.ces.show import NameArgument
from pilotage.cli.console import Column
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration


@connected
def jobs(session: Session, name: NameArgument) -> None:
    """List the batch jobs of a CE's pilots as its batch system has them: for whom they are, their state and age."""
    with session.client() as client:
        listed = client.ce_jobs(name)
    session.screen.json({"jobs": listed})
    now = time.time()
    columns = (
        Column("batch job"),
        Column("pilot", right=True),
        Column("state"),
        Column("age", right=True),
        Column("owner"),
        Column("group", rank=4),
        Column("queue", right=True, rank=3),
        Column("cores", right=True, rank=3),
        Column("node", rank=1),
        Column("reason", text=True),
        Column("left to the match", text=True, rank=2),
    )
    rows = (
        (
            job.batch_id,
            "given up" if job.pilot is None else job.pilot,
            job.state,
            "" if job.submitted is None else format_duration(now - job.submitted),
            job.owner or "any",
            job.group,
            job.queue,
            job.properties.get("cores", ""),
            job.node,
            f"{job.native}: {job.reason}" if job.reason else "",
            job.properties.get("unmapped", ""),
        )
        for job in listed
    )
    session.screen.table(columns, rows)
