"""Begins and ends the turns of owners on bound pilots (core/shares/turns.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pilotage.core.shares.turns import SHARE, Turn, leave_for
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

Lots = Callable[[], Mapping[str, int]]
"""Draws lots among all queues that would fit the pilot if it were not bound. Returns the lots by owner."""


def turn_over(pool: Pool, pilot: PilotRow, now: float) -> bool:
    """Whether lots must be drawn before this bound pilot gets jobs. Called for each request for jobs."""
    turn = pool.turns.running.get(pilot.id)
    return turn is None or turn.begun is None or turn.over(now)


def begin_turn(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """Begin the turn of the owner of the pilot's first job, who pays at its end."""
    ce = pool.policy.ces.get(pilot.ce)
    if ce is not None and ce.takes_turns:
        turn = Turn(pilot.ce, pilot.only_owner or "", ce.quantum, now)
        tx.put(pool.turns.running, pilot.id, turn)


def next_turn(pool: Pool, tx: Transaction, pilot: PilotRow, lots: Lots, now: float) -> bool:
    """Begin the next turn of the pilot. False if another owner has it, and the pilot must leave."""
    turns, ce = pool.turns, pool.policy.ces.get(pilot.ce)
    assert pilot.only_owner is not None
    if ce is None or not ce.takes_turns:
        return True
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


def _give_way(pool: Pool, tx: Transaction, pilot: PilotRow, owner: str, now: float) -> None:
    pool.pilots.touch(tx, pilot)
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
