"""How a pilot ends: each way is a row of one table, and one function carries the end out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pilotage.core.handover import RetryDecision, after_failure
from pilotage.core.ids import PilotId
from pilotage.core.jobs.states import JobState
from pilotage.core.pilots.orders import ENDS_AS_DELETED
from pilotage.core.pilots.states import PILOT_STATES, PilotState
from pilotage.services.jobs.failures import counted
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts, costs, pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

DEFAULT_LEASE = 3600.0
"""Seconds of the lease of a pilot whose CE has gone from the policy."""


LEASE_OVER = "its lease ran out"
"""The reason of a pilot that was not heard for the length of its lease."""


class PilotEnd(StrEnum):
    """A way in which a pilot ends."""

    LEFT = "left"
    """It said goodbye."""
    LEASE_OVER = "lease-over"
    """Its lease ran out; as an intent it may never have called home."""
    VANISHED = "vanished"
    """A complete listing of the batch system does not have it any more."""
    NEVER_STARTED = "never-started"
    """The batch system never had it: its submission failed, or was never made."""
    NOT_TAKEN = "not-taken"
    """The batch system had reached a limit of its own, or was not reached, so it never had it. Nobody is to blame."""
    UNFIT = "unfit"
    """It said that no payload may run on its node, say because the node cannot isolate payloads."""
    RESTARTED = "restarted"
    """Its batch job was started again by the batch system, so its program has ended without a word."""
    CANCELLED = "cancelled"
    """A person or the director ended it: it said goodbye, or a complete listing does not have it any more."""


@dataclass(frozen=True, slots=True)
class EndRule:
    """The effects of one way to end."""

    state: PilotState
    """The final state of a pilot that had called home."""
    state_unheard: PilotState
    """The final state of a pilot that had never called home."""
    event: str
    """The kind of the pilot's event."""
    job_event: str
    """The kind of the events of its jobs."""
    job_reason: str
    """The reason that its jobs are given; `{reason}` stands for the pilot's own."""
    costs_try: bool
    """Whether each job that the pilot had confirmed loses a try. A lost offer never costs one."""
    by_pilot: bool = False
    """The pilot is the actor of its event; otherwise the server."""


_LOST = "pilot-lost"

END_RULES: Mapping[PilotEnd, EndRule] = {
    PilotEnd.LEFT: EndRule(
        PilotState.DONE,
        PilotState.DONE,
        "pilot-left",
        "released",
        "pilot leaves: {reason}",
        costs_try=False,
        by_pilot=True,
    ),
    PilotEnd.UNFIT: EndRule(
        PilotState.FAILED,
        PilotState.ABORTED,
        "pilot-unfit",
        "released",
        "pilot leaves: {reason}",
        costs_try=False,
        by_pilot=True,
    ),
    PilotEnd.LEASE_OVER: EndRule(
        PilotState.FAILED,
        PilotState.ABORTED,
        _LOST,
        "lease-over",
        "its pilot's lease ran out",
        costs_try=True,
    ),
    PilotEnd.VANISHED: EndRule(
        PilotState.FAILED,
        PilotState.ABORTED,
        _LOST,
        "lease-over",
        "its pilot ended without a word",
        costs_try=True,
    ),
    PilotEnd.NEVER_STARTED: EndRule(
        PilotState.ABORTED,
        PilotState.ABORTED,
        _LOST,
        "offer-lost",
        "its pilot never started",
        costs_try=False,
    ),
    PilotEnd.NOT_TAKEN: EndRule(
        PilotState.DELETED,
        PilotState.DELETED,
        "pilot-cancelled",
        "offer-lost",
        "its pilot never started",
        costs_try=False,
    ),
    PilotEnd.RESTARTED: EndRule(
        PilotState.FAILED,
        PilotState.ABORTED,
        _LOST,
        attempts.RESTARTED,
        "its pilot's batch job was started again",
        costs_try=False,
    ),
    PilotEnd.CANCELLED: EndRule(
        PilotState.DELETED,
        PilotState.DELETED,
        "pilot-cancelled",
        "released",
        "its pilot was cancelled",
        costs_try=False,
    ),
}


def end_of_goodbye(pilot: PilotRow) -> PilotEnd:
    """The end of a pilot that says goodbye."""
    return PilotEnd.CANCELLED if pilot.leave in ENDS_AS_DELETED else PilotEnd.LEFT


def end_pilot(moves: JobTransitions, pilot: PilotRow, end: PilotEnd, reason: str) -> PilotState:
    """End a pilot, and take back its jobs; the pilot's new state.

    The caller writes `moves`. `IllegalMove`: a pilot in this state does not end so, and nothing has been changed.
    """
    pool, tx, rule = moves.pool, moves.tx, END_RULES[end]
    old, new = pilot.state, rule.state_unheard if pilot.started is None else rule.state
    PILOT_STATES.check(old, new)
    for job in moves.of_pilot(pilot.id):
        _take_back(moves, job, pilot, rule, rule.job_reason.format(reason=reason))
    # Another message of this pilot may share the transaction and its row.
    silence = {} if rule.by_pilot else {"silent_from": _last_sign_of_life(moves, pilot), "silent_until": None}
    pilot.state, pilot.ended, pilot.lease_until, pilot.reason = new, moves.now, None, reason
    pool.pilots.rows.forget(pilot)
    pilots.update(
        tx.connection,
        pilot.id,
        state=new,
        ended=moves.now,
        lease_until=None,
        reason=reason,
        cores_until=None if pilot.cores_from is None else moves.now,
        **silence,
    )
    record(
        tx.connection,
        pool.ids.events,
        at=moves.now,
        kind=rule.event,
        actor=f"pilot:{pilot.id}" if rule.by_pilot else "server",
        detail=reason if rule.by_pilot else f"pilot {pilot.id}: {reason}",
        old=old,
        new=new,
    )
    tx.delete(pool.pilots.unconfirmed, pilot.id)
    if pool.peers.shared:
        pool.peers.publish(tx, PeerUpdate(pilots=[pilot.id]))
    forget_unheard(pool, tx, pilot.id)
    return new


def _last_sign_of_life(moves: JobTransitions, pilot: PilotRow) -> float | None:
    """When the pilot was last heard, at the earliest; None: never."""
    if pilot.started is None:
        return None
    heard = moves.pool.pilots.heard.get(pilot.id)
    if heard is None:
        # Another server heard it, or an earlier process. Its costs are booked up to a sign of life.
        ce = moves.pool.policy.ces.get(pilot.ce)
        lease = ce.lease if ce else DEFAULT_LEASE
        renewed = pilot.started if pilot.lease_until is None else pilot.lease_until - lease
        booked = costs.booked_until(moves.tx.connection, [pilot.id])[pilot.id]
        heard = renewed if booked is None else max(renewed, booked)
    return min(moves.now, max(heard, pilot.started))


def end_silent_pilot(
    pool: Pool, tx: Transaction, pilot: PilotRow, end: PilotEnd, reason: str, now: float
) -> PilotState:
    """End a pilot whose end the server or a director has found out, and write all moves."""
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, "server"))
    new = end_pilot(moves, pilot, end, reason)
    moves.write()
    return new


def end_absent_pilot(pool: Pool, tx: Transaction, pilot: PilotRow, reason: str, now: float) -> PilotState:
    """End a pilot that the batch system does not have any more.

    A pilot that was ordered to go has not vanished: its end has the reason of the order.
    """
    if pilot.leave in ENDS_AS_DELETED:
        return end_silent_pilot(pool, tx, pilot, PilotEnd.CANCELLED, pilot.reason or reason, now)
    return end_silent_pilot(pool, tx, pilot, PilotEnd.VANISHED, reason, now)


def _take_back(moves: JobTransitions, job: JobRow, pilot: PilotRow, rule: EndRule, reason: str) -> None:
    if not rule.costs_try:
        moves.free(job, rule.job_event, reason, pilot)
    elif job.state is JobState.MATCHED:
        moves.free(job, "offer-lost", reason, pilot)
    else:
        _count_failed_try(moves, job, pilot, reason)


def _count_failed_try(moves: JobTransitions, job: JobRow, pilot: PilotRow, reason: str) -> None:
    """The hand-over's `expire` of a held job: it waits again, or has failed for good."""
    job = counted(job, "lease-over")
    most = moves.pool.policy.jobs.max_reschedules
    moves.attempts.cut(job, attempts.LEASE_OVER)
    if after_failure("lease-over", job.failures, most=most, own_retries=0) is RetryDecision.AGAIN:
        moves.retry(job, "lease-over", reason, pilot)
    else:
        detail = f"{reason} ({job.failures} times)"
        moves.end(job, "lease-over", JobState.FAILED, detail, pilot, failure="lease-over")


def forget_unheard(pool: Pool, tx: Transaction, pilot: PilotId) -> None:
    """Store the facts of a pilot that memory alone had, and remove it from memory.

    For a pilot that has ended, or speaks to another server now. The offers that this server made to the latter lapse
    here, so they stay.
    """
    if finished := pool.pilots.finished.get(pilot):
        pilots.add_finished(tx.connection, pilot, finished)
    tx.delete(pool.pilots.finished, pilot)
    tx.on_rollback(pool.shares.turns.end(pilot, pool.pilots.last_seen.get(pilot)))
    tx.delete(pool.pilots.last_seen, pilot)
    tx.delete(pool.pilots.heard, pilot)
    tx.delete(pool.pilots.uses, pilot)
    tx.discard(pool.pilots.stalled, pilot)
