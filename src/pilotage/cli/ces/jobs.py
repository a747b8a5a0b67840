"""`pilotage ce jobs`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pilotage.cli.ces.show import NameArgument
from pilotage.cli.console import Column, Columns
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration

if TYPE_CHECKING:
    from pilotage.wire.ces import CeJob


@connected
def jobs(session: Session, name: NameArgument) -> None:
    """List the batch jobs of a CE's pilots as its batch system has them: for whom they are, their state and age."""
    with session.client() as client:
        listed = client.ce_jobs(name)
    session.screen.json({"jobs": listed})
    now = time.time()
    columns: Columns[CeJob] = (
        (Column("batch job"), lambda job: job.batch_id),
        (Column("pilot", right=True), lambda job: "given up" if job.pilot is None else job.pilot),
        (Column("state"), lambda job: job.state),
        (
            Column("age", right=True),
            lambda job: "" if job.submitted is None else format_duration(now - job.submitted),
        ),
        (Column("owner"), lambda job: job.owner or "any"),
        (Column("group", rank=4), lambda job: job.group),
        (Column("queue", right=True, rank=3), lambda job: job.queue),
        (Column("cores", right=True, rank=3), lambda job: job.properties.get("cores", "")),
        (Column("node", rank=1), lambda job: job.node),
        (Column("reason", text=True), lambda job: f"{job.native}: {job.reason}" if job.reason else ""),
        (Column("left to the match", text=True, rank=2), lambda job: job.properties.get("unmapped", "")),
    )
    session.screen.listing(columns, listed)
