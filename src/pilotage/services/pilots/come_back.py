"""Pilots that are heard though they were missed: absent from listings, or given up."""

from __future__ import annotations

from pilotage.core.handover import Custody
from pilotage.core.jobs.states import custody_of
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts, pilot_submissions, pilots
from pilotage.store.tables.attempts import LapsedAttempt
from pilotage.store.tables.events import record
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction


def contradict_absence(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """A pilot that listings lack has been heard: its absence begins again."""
    pool.pilots.rows.touch(tx, pilot)
    pilot.absent_since = now
    pilots.update(tx.connection, pilot.id, absent_since=now)


def come_back(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """A pilot that was given up lives: it works on, except at jobs that others were given since."""
    PILOT_STATES.check(pilot.state, PilotState.RUNNING)
    pilot_submissions.reopen(tx.connection, pilot.submission_stamp)
    pool.pilots.rows.touch(tx, pilot)
    pilot.state, pilot.ended, pilot.lease_until, pilot.reason = PilotState.RUNNING, None, None, ""
    pilots.update(
        tx.connection,
        pilot.id,
        state=pilot.state,
        ended=None,
        reason="",
        cores_until=None,
        silent_until=now,
    )
    pool.pilots.watch.add(pilot.id, pilot.ce, now)
    record(
        tx.connection,
        pool.ids.events,
        at=now,
        kind="pilot-back",
        actor=f"pilot:{pilot.id}",
        detail="after it was given up",
        old=PilotState.FAILED,
        new=PilotState.RUNNING,
    )


def lapsed_attempt(moves: JobTransitions, job: JobRow, epoch: int, pilot: PilotRow) -> LapsedAttempt | None:
    """The attempt of a pilot, if only its lease or its batch system has ended it and nobody has the job."""
    if job.epoch != epoch or custody_of(job.state) is not Custody.FREE:
        return None
    moves.write()
    return attempts.lapsed(moves.tx.connection, job.id, epoch, pilot.id)
