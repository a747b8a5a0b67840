"""Orders to leave, from administrators and directors. Each pilot gets its order with the answer to its next call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder, is_stronger, order_for
from pilotage.services.pool.state import Pool
from pilotage.store.tables import pilots
from pilotage.store.tables.events import record
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

CHUNK = 50
"""Pilots ordered in one transaction, so that no other request waits long."""

_PAST = {LeaveOrder.DRAIN: "drained", LeaveOrder.CANCEL: "killed", LeaveOrder.KILL: "killed"}


@dataclass(slots=True)
class Ordered:
    """The pilots that have the order now, and why others have not."""

    done: list[PilotId] = field(default_factory=list)
    refused: list[tuple[PilotId, str]] = field(default_factory=list)
    not_called: int = 0
    """How many of `done` have not called home: only their batch system can end them."""


def order_to_leave(
    pool: Pool,
    tx: Transaction,
    ids: Sequence[PilotId],
    asked: LeaveOrder,
    *,
    actor: str,
    reason: str,
    now: float,
    dry_run: bool = False,
) -> Ordered:
    """Order at most `CHUNK` pilots to leave. A pilot that has this order or a stronger one keeps it.

    `actor`: "user:NAME", or "server".
    """
    rows = {row.id: row for row in pilots.by_ids(tx.connection, ids)}
    ordered = Ordered()
    for id_ in ids:
        row = rows.get(id_)
        if row is None:
            ordered.refused.append((id_, "there is no such pilot"))
        elif row.ended is not None:
            ordered.refused.append((id_, f"the pilot is already {row.state}"))
        else:
            ordered.done.append(id_)
            ordered.not_called += row.started is None
            order = order_for(asked, called_home=row.started is not None)
            if is_stronger(order, row.leave) and not dry_run:
                _give_order(pool, tx, row, order, actor, reason, now)
    return ordered


def _give_order(
    pool: Pool, tx: Transaction, pilot: PilotRow, order: LeaveOrder, actor: str, reason: str, now: float
) -> None:
    because = f": {reason}" if reason else ""
    tell_to_leave(pool, tx, pilot, order, f"{_PAST[order]} by {actor.removeprefix('user:')}{because}")
    record(
        tx.connection,
        pool.ids.events,
        at=now,
        kind="pilot-drain" if order is LeaveOrder.DRAIN else "pilot-kill",
        actor=actor,
        detail=f"pilot {pilot.id}: {order}{because}",
        old=pilot.state,
        new=pilot.state,
    )


def tell_to_leave(pool: Pool, tx: Transaction, pilot: PilotRow, how: str, reason: str | None = None) -> None:
    """Store an order for a pilot's next call. `reason`: of its end; None leaves the present one."""
    known = pool.pilots.rows.get(pilot.token_hash or "")
    changes = {"leave": how} if reason is None else {"leave": how, "reason": reason}
    for row in filter(None, (pilot, known)):
        pool.pilots.rows.touch(tx, row)
        for name, value in changes.items():
            setattr(row, name, value)
    pilots.update(tx.connection, pilot.id, **changes)
