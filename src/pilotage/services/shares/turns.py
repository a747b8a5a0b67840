"""Whose turn it is on a pilot that serves one owner at a time (core/shares/turns.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pilotage.core.shares.turns import SHARE, Turn, leave_for
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

Lots = Callable[[], Mapping[str, int]]
"""Draws lots among all queues that the pilot would fit were it bound to nobody; by owner."""


def turn_over(pool: Pool, pilot: PilotRow, now: float) -> bool:
    """Whether lots must be drawn before this pilot, which is bound to an owner, is given jobs. Asked at every take."""
    turn = pool.turns.running.get(pilot.id)
    return turn is None or turn.begun is None or turn.over(now)


def begin_turn(pool: Pool, tx: Transaction, pilot: PilotRow, now: float) -> None:
    """The pilot's first job has just bound it to its owner, who pays for this turn when it is over."""
    ce = pool.policy.ces.get(pilot.ce)
    if ce is not None and ce.owners == "any":
        turn = Turn(pilot.ce, pilot.only_owner or "", ce.quantum, now)
        tx.put(pool.turns.running, pilot.id, turn)


def next_turn(pool: Pool, tx: Transaction, pilot: PilotRow, lots: Lots, now: float) -> bool:
    """Begin the pilot's next turn; False: it is another owner's, and the pilot is told to leave."""
    turns, ce = pool.turns, pool.policy.ces.get(pilot.ce)
    assert pilot.only_owner is not None
    if ce is None or ce.owners != "any":
        return True
    current = turns.running.get(pilot.id)
    if current is None or current.begun is None:
        # It was started for this turn, or has come from another server.
        turn = current or Turn(pilot.ce, pilot.only_owner, ce.quantum)
        tx.on_rollback(turns.begin(pilot.id, turn, now))
        return True
    cores, won = max(1, pilot.processors), lots()
    if not current.paid:
        used = Turn(pilot.ce, pilot.only_owner, min(max(0.0, now - current.begun), current.length))
        tx.on_rollback(turns.draw_up(used, cores, won, pool.index.waiting_jobs_of, fixed=True))
    turn = Turn(pilot.ce, pilot.only_owner, ce.quantum)
    tx.on_rollback(turns.draw_up(turn, cores, won, pool.index.waiting_jobs_of))
    if turn.owner == pilot.only_owner:
        tx.on_rollback(turns.begin(pilot.id, turn, now))
        return True
    tx.on_rollback(turns.give_way(pilot.id, turn))
    _give_way(pool, tx, pilot, turn.owner, now)
    return False


def _give_way(pool: Pool, tx: Transaction, pilot: PilotRow, owner: str, now: float) -> None:
    pool.touch_pilot(tx, pilot)
    pilot.leave = leave_for(owner)
    pilots.update(tx.connection, pilot.id, leave=pilot.leave)
    record(
        tx.connection,
        pool.events,
        at=now,
        kind="pilot-gives-way",
        actor="server",
        detail=f"pilot {pilot.id}: {SHARE}",
        old=pilot.state,
        new=pilot.state,
    )
