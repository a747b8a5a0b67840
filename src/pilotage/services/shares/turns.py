"""Begins and ends the turns of owners on bound pilots (core/shares/turns.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pilotage.core.ids import PilotId
from pilotage.core.shares.turns import SHARE, Turn, leave_for
from pilotage.services.pool.share_state import ShareState
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

Lots = Callable[[], Mapping[str, int]]
"""Draws lots among all queues that would fit the pilot if it were not bound. Returns the lots by owner."""


def turn_over(shares: ShareState, pilot: PilotRow, now: float) -> bool:
    """Whether lots must be drawn before this bound pilot gets jobs. Called for each request for jobs."""
    turn = shares.turns.running.get(pilot.id)
    return turn is None or turn.begun is None or turn.over(now)


def begin_turn(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """Begin the turn of the owner of the pilot's first job, who pays at its end."""
    if pool.policy.takes_turns(pilot.ce):
        turn = Turn(pilot.ce, pilot.only_owner or "", pool.policy.ces[pilot.ce].quantum, now)
        tx.put(pool.shares.turns.running, pilot.id, turn)


def promised_turn(pool: Pool, pilot: PilotRow) -> tuple[PilotId, Turn] | None:
    """The turn for which a pilot of the same batch CE gave way, and that pilot; None: there is none.

    A local CE gets a pilot for such a turn. A batch system starts any pilot that waits, so the first one that
    asks for work has the turn.
    """
    ce = pool.policy.ces.get(pilot.ce)
    if ce is None or ce.type == "local" or not pool.policy.takes_turns(pilot.ce):
        return None
    turns = pool.shares.turns.following.items()
    return next(((giver, turn) for giver, turn in turns if turn.ce == pilot.ce), None)


def begin_promised_turn(
    shares: ShareState, tx: Transaction, pilot: PilotRow, giver: PilotId, now: float
) -> None:
    """Begin the turn for which `giver` gave way."""
    turn, undo = shares.turns.take_over(giver)
    tx.on_rollback(undo)
    if turn is not None:
        tx.on_rollback(shares.turns.begin(pilot.id, turn, now))


def next_turn(pool: Pool, tx: Transaction, pilot: PilotRow, lots: Lots, now: float) -> bool:
    """Begin the next turn of the pilot. False if another owner has it, and the pilot must leave."""
    assert pilot.only_owner is not None
    if not pool.policy.takes_turns(pilot.ce):
        return True
    turns, ce = pool.shares.turns, pool.policy.ces[pilot.ce]
    current = turns.running.get(pilot.id)
    if current is None or current.begun is None:
        # It was started for this turn, or has come from another server.
        turn = current or Turn(pilot.ce, pilot.only_owner, ce.quantum)
        tx.on_rollback(turns.begin(pilot.id, turn, now))
        return True
    tx.on_rollback(turns.cancel_overdue(now))
    cores, won = max(1, pilot.processors), lots()
    if not current.paid:
        used = Turn(pilot.ce, pilot.only_owner, min(max(0.0, now - current.begun), current.length))
        tx.on_rollback(turns.divide(used, cores, won, pool.queues.index.waiting_jobs_of, fixed=True))
    turn = Turn(pilot.ce, pilot.only_owner, ce.quantum)
    tx.on_rollback(turns.divide(turn, cores, won, pool.queues.index.waiting_jobs_of))
    if turn.owner == pilot.only_owner:
        tx.on_rollback(turns.begin(pilot.id, turn, now))
        return True
    tx.on_rollback(turns.give_way(pilot.id, turn))
    _give_way(pool, tx, pilot, turn.owner, now)
    return False


def end_turn_without_jobs(pool: Pool, tx: Transaction, pilot: PilotRow, lots: Lots, now: float) -> None:
    """Let a pilot without a job leave at once if other owners wait for it and its own owner does not."""
    turns, own = pool.shares.turns, pilot.only_owner
    assert own is not None
    if not pool.policy.takes_turns(pilot.ce):
        return
    won = lots()
    other = None if own in won else turns.first_waiting(pilot.ce, won, pool.queues.index.waiting_jobs_of)
    if other is not None:
        tx.on_rollback(turns.end(pilot.id, now))
        tx.on_rollback(turns.give_way(pilot.id, Turn(pilot.ce, other, pool.policy.ces[pilot.ce].quantum)))
        _give_way(pool, tx, pilot, other, now)


def _give_way(pool: Pool, tx: Transaction, pilot: PilotRow, owner: str, now: float) -> None:
    pool.pilots.rows.touch(tx, pilot)
    pilot.leave = leave_for(owner)
    pilots.update(tx.connection, pilot.id, leave=pilot.leave)
    record(
        tx.connection,
        pool.ids.events,
        at=now,
        kind="pilot-gives-way",
        actor="server",
        detail=f"pilot {pilot.id}: {SHARE}",
        old=pilot.state,
        new=pilot.state,
    )
