"""The second phase of a CE's director: it stores the answers to submissions and releases."""

from __future__ import annotations

from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.states import PilotState
from pilotage.outside.batch.adapter import Receipt
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.submissions import give_up, pilots_of, set_batch_ids
from pilotage.services.pilots.lifecycle import PilotEnd
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilot_submissions, pilots
from pilotage.store.tables.pilot_submissions import PilotSubmissionRow
from pilotage.store.writer.transaction import Transaction


def check_room(director: CeDirector) -> None:
    """Refuse the further submissions of a cycle in which the batch system had no room for one pilot."""
    if director.no_room:
        raise SubmissionFailed(SubmissionRefusal.FULL, director.no_room)


def acknowledged(director: CeDirector, pool: Pool, tx: Transaction, stamp: str, receipt: Receipt) -> bool:
    """The batch system holds the submission, or a local CE has started it. False: it has been given up."""
    row = pilot_submissions.live_by_stamp(tx.connection, stamp)
    if row is None:
        return False
    if director.largest is not None and row.pilots >= director.largest:
        tx.set(director, "largest", 2 * director.largest)
    phase = SubmissionPhase.RELEASED if director.local else SubmissionPhase.HELD
    pilot_submissions.update(tx.connection, row.id, phase=phase, batch_id=receipt.array, absent_since=None)
    set_batch_ids(pool, tx, pilots_of(tx, row), dict(enumerate(receipt.batch_ids)))
    if director.local:
        _let_wait(pool, tx, row)
    return True


def releasing(tx: Transaction, stamp: str) -> bool:
    """Store that a submission is about to be released. False: it has been given up."""
    row = pilot_submissions.live_by_stamp(tx.connection, stamp)
    if row is None:
        return False
    if row.phase is SubmissionPhase.HELD:
        pilot_submissions.update(tx.connection, row.id, phase=SubmissionPhase.RELEASING)
    return True


def released(director: CeDirector, pool: Pool, tx: Transaction, stamp: str) -> None:
    """The batch system says that it has released a submission. A listing shows whether it has."""
    row = pilot_submissions.live_by_stamp(tx.connection, stamp)
    if row is None:
        return
    pilot_submissions.update(
        tx.connection, row.id, releases=row.releases + 1, epoch=director.memory.epoch, absent_since=None
    )
    _let_wait(pool, tx, row)


def _let_wait(pool: Pool, tx: Transaction, row: PilotSubmissionRow) -> None:
    """The pilots of a submission wait for their start, unless they have called home already."""
    for pilot in pilots_of(tx, row):
        if pilot.state is PilotState.SUBMITTED:
            pool.pilots.rows.forget(pilot)
            pilots.update(tx.connection, pilot.id, state=PilotState.WAITING, lease_until=None)


def failed(
    director: CeDirector, pool: Pool, tx: Transaction, stamp: str, error: SubmissionFailed, now: float
) -> None:
    """A submission was not acknowledged."""
    if error.refusal is SubmissionRefusal.IN_DOUBT:
        in_doubt(tx, stamp, error.reason)
    elif error.refusal is SubmissionRefusal.FULL:
        full(director, pool, tx, stamp, error.reason, now)
    elif error.refusal is SubmissionRefusal.UNREACHED:
        unreached(director, pool, tx, stamp, error.reason, now)
    else:
        refused(director, pool, tx, stamp, error.reason, now)


def in_doubt(tx: Transaction, stamp: str, reason: str) -> None:
    """The batch system gave no clear answer: the next listings tell."""
    if (row := pilot_submissions.live_by_stamp(tx.connection, stamp)) is not None:
        pilot_submissions.update(tx.connection, row.id, phase=SubmissionPhase.IN_DOUBT, reason=reason)


def full(director: CeDirector, pool: Pool, tx: Transaction, stamp: str, reason: str, now: float) -> None:
    """The batch system has reached a limit of its own: no failure, so it never stops the CE.

    It may have room for fewer pilots, so half as many are tried next. Without room for one, the CE waits.
    """
    row, memory = pilot_submissions.live_by_stamp(tx.connection, stamp), director.memory
    if row is None:
        return
    give_up(pool, tx, row, PilotEnd.NOT_TAKEN, reason, now)
    tx.set(director, "largest", max(1, row.pilots // 2))
    if row.pilots == 1:
        tx.set(director, "no_room", reason)
        memory.restore(tx)
        memory.wait_for_room(tx, reason, now)
        memory.store(tx)


def unreached(director: CeDirector, pool: Pool, tx: Transaction, stamp: str, reason: str, now: float) -> None:
    """The batch system certainly does not have the submission: give it up at once, without a doubt.

    The CE counts as unreachable, and the next cycle lists. A pause keeps the tries apart if listings go through.
    """
    row, memory = pilot_submissions.live_by_stamp(tx.connection, stamp), director.memory
    if row is None:
        return
    give_up(pool, tx, row, PilotEnd.NOT_TAKEN, reason, now)
    tx.set(director, "next_listing", 0.0)
    memory.restore(tx)
    tx.set(memory, "unreachable", reason)
    tx.set(memory, "unreachable_at", now)
    memory.pause(tx, reason, row.submitted, now)
    memory.store(tx)


def refused(director: CeDirector, pool: Pool, tx: Transaction, stamp: str, reason: str, now: float) -> bool:
    """The batch system will never start the submission: give it up. False: it has pilots that may run."""
    row, memory = pilot_submissions.live_by_stamp(tx.connection, stamp), director.memory
    if row is None:
        return True
    members = pilots_of(tx, row)
    if row.phase is SubmissionPhase.RELEASED or any(pilot.started is not None for pilot in members):
        return False
    give_up(pool, tx, row, PilotEnd.NEVER_STARTED, reason, now)
    memory.restore(tx)
    if director.local:
        # A machine that is short of processes for a moment is no reason to pause at once.
        memory.count_silent_pilot(pool, tx, reason, row.submitted, now)
    else:
        memory.pause(tx, reason, row.submitted, now)
        memory.count_failure(pool, tx, reason, now)
    memory.store(tx)
    return True
