"""The batch jobs of a CE as its batch system has them, for the administrators of the site."""

from __future__ import annotations

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.submission import STAMP_PREFIX, ListedTask, NativeState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import absent_pilots, pilot_submissions, pilots
from pilotage.store.tables.pilots import SubmittedPilot
from pilotage.wire.ces import CeJob


def listed_jobs(batch: BatchAdapter, ce: str, connection: Connection) -> list[CeJob]:
    """The batch jobs of the pilots of `ce` that have not ended, also of pilots that were given up.

    `Unreachable`: there is no complete listing.
    """
    listing = batch.list_pilots()
    if not listing.complete:
        raise Unreachable(listing.failure)
    properties = batch.properties()
    rows = {pilot.stamp: pilot for pilot in pilots.with_batch_jobs(connection, ce)}
    stamps = {task.stamp for task in listing.tasks if task.stamp.startswith(STAMP_PREFIX)}
    given_up = pilot_submissions.ended_stamps(connection, ce, sorted(stamps))
    known = [f"{task.stamp}/{task.index}" for task in listing.tasks if task.stamp in stamps]
    outlived = absent_pilots.ended_among(connection, known) if known else set()
    jobs = []
    for task in listing.tasks:
        row = rows.get(f"{task.stamp}/{task.index}") or rows.get(task.stamp)
        if task.state is not NativeState.ENDED and (
            row is not None or task.stamp in given_up or f"{task.stamp}/{task.index}" in outlived
        ):
            facts = properties.get((task.stamp, task.index)) or properties.get((task.stamp, None), {})
            jobs.append(_job(task, row, facts))
    return sorted(jobs, key=lambda job: (job.submitted or 0.0, job.stamp, job.index))


def _job(task: ListedTask, row: SubmittedPilot | None, facts: dict[str, str]) -> CeJob:
    known = {name: value for name, value in facts.items() if name not in ("stamp", "owner", "group", "queue")}
    return CeJob(
        batch_id=task.batch_id,
        state=str(task.state),
        native=task.native,
        reason=task.reason or ("its pilot has ended" if row is None else ""),
        node=task.node,
        stamp=task.stamp,
        index=task.index or 0,
        pilot=None if row is None else row.id,
        submitted=None if row is None else row.submitted,
        owner=facts.get("owner", ""),
        group=facts.get("group", ""),
        queue=facts.get("queue", ""),
        properties=known,
    )
