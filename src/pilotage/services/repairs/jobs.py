"""Repairs of jobs, submissions and pilots."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import CONFIRMED, JobState
from pilotage.services.jobs.queue_of_job import find_queue
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pilots.lifecycle import DEFAULT_LEASE
from pilotage.services.repairs.repair import REASON, Repair, RepairRun
from pilotage.store.integrity import mended_jobs
from pilotage.store.tables import jobs, pilots
from pilotage.store.tables.jobs import JobRow
from pilotage.store.writer.transaction import Transaction


def _move_from(
    run: RepairRun,
    tx: Transaction,
    ids: Sequence[int],
    states: Collection[JobState],
    move: Callable[[JobTransitions, JobRow], object],
) -> None:
    """Move the jobs that are in one of these states."""
    moves = run.moves(tx)
    moves.load(ids)
    for id_ in ids:
        job = moves.row(JobId(id_))
        if job is not None and job.state in states:
            move(moves, job)
    moves.write()


def free(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let jobs wait again. Nothing is counted against them; a pilot that has one after all is told to end it."""
    held = CONFIRMED | {JobState.MATCHED}
    _move_from(run, tx, ids, held, lambda moves, job: moves.free(job, "released", REASON, None))


def give_queue(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    moves = run.moves(tx)
    moves.load(ids)
    for id_ in ids:
        job = moves.row(id_)
        if job is None:
            continue
        queue = find_queue(moves, job)
        if job.state is JobState.WAITING:
            moves.wait_elsewhere(job, queue, job.user_priority, REASON)
    moves.write()


def begin_history(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Give jobs an event of their present state. Earlier events stay linked where the last event is about them."""
    own = mended_jobs.with_own_last_event(tx.connection, ids)
    events = run.pool.event_batch(run.now, "server")
    for job in jobs.by_ids(tx.connection, ids).values():
        previous = job.last_event if job.id in own else 0
        state = str(job.state)
        event = events.add("repaired", state, state, job.id, job.submission, job.epoch, previous, REASON)
        mended_jobs.set_last_event(tx.connection, job.id, event)
    events.write(tx.connection)


def list_held(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Add jobs to the lists of their pilots."""
    of_pilots: dict[int, list[JobRow]] = {}
    for job in jobs.by_ids(tx.connection, ids).values():
        if job.pilot is not None:
            of_pilots.setdefault(job.pilot, []).append(job)
    for held in of_pilots.values():
        assert held[0].pilot is not None
        row = pilots.by_id(tx.connection, held[0].pilot)
        assert row is not None
        pilots.update(tx.connection, row.id, jobs=json.dumps([*row.jobs, *(job.id for job in held)]))


def raise_epochs(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    free(run, tx, ids)
    mended_jobs.raise_epochs(tx.connection, ids)


def unblock(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    _move_from(run, tx, ids, {JobState.BLOCKED}, lambda moves, job: moves.requeue(job, "unblocked"))


def resume(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    _move_from(
        run, tx, ids, {JobState.STALLED}, lambda moves, job: moves.move(job, "heard-again", JobState.RUNNING)
    )


REPAIRS: Final[Mapping[str, Repair]] = {
    "chunks-and-count": lambda run, tx, ids: mended_jobs.set_counts(tx.connection, ids),
    "staged-with-jobs": lambda run, tx, ids: mended_jobs.accept_staged(tx.connection, ids),
    "rows-of-deleted-submissions": lambda run, tx, ids: mended_jobs.delete_left_rows(tx.connection, ids),
    "stalled-though-heard": resume,
    "pilots-ended-or-not": lambda run, tx, ids: mended_jobs.set_ends_of_pilots(tx.connection, ids, run.now),
    "pilots-without-lease": lambda run, tx, ids: mended_jobs.set_leases(
        tx.connection, ids, run.now + DEFAULT_LEASE
    ),
    "jobs-also-in-history": lambda run, tx, ids: mended_jobs.delete_archived(tx.connection, ids),
    "jobs-without-queue": give_queue,
    "jobs-without-last-event": begin_history,
    "jobs-of-another-event": begin_history,
    "held-by-nobody": free,
    "free-with-pilot": lambda run, tx, ids: mended_jobs.take_pilots_away(tx.connection, ids),
    "held-by-ended-pilot": free,
    "held-but-not-listed": list_held,
    "held-without-attempt": free,
    "attempts-of-nobody": lambda run, tx, ids: mended_jobs.close_attempts(tx.connection, ids, run.now),
    "epochs-behind": raise_epochs,
    "rescheduled-for-ever": lambda run, tx, ids: mended_jobs.set_retry_times(tx.connection, ids, run.now),
    "owner-or-final-state": lambda run, tx, ids: mended_jobs.set_owners(tx.connection, ids),
    "ended-or-not": lambda run, tx, ids: mended_jobs.set_ends(tx.connection, ids, run.now),
    "blocked-by-nothing": unblock,
}
