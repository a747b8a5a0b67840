"""Cancels waiting pilots that no waiting job needs any more. Only demand `matched` knows which pilots these are.

A pilot must be unneeded for `director.cancel_after` seconds: its place in the queue of the batch system has a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import PilotId
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.services.director.demand import Iteration
from pilotage.services.pilots.orders import tell_to_leave
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import pilot_demand, pilots
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

MOST = 50
"""Pilots cancelled after one iteration."""

CANCELLED_AT_ONCE = 10
"""Pilots cancelled in one transaction, so that no other request waits long."""

REASON = "no waiting job needs it"


@dataclass(slots=True)
class UnneededPilots:
    """The waiting pilots that the last iterations did not need. This memory may be lost."""

    since: Mapping[PilotId, float] = field(default_factory=dict)

    def note(self, connection: Connection, work: Iteration, now: float) -> list[PilotId]:
        """Note which waiting pilots an iteration has left over. Returned: at most `MOST` that were so for long enough.

        For a reader's connection, in any thread: there may be thousands.
        """
        if work.policy.director.demand != "matched":
            self.since = {}
            return []
        self.since = {
            pilot: min(self.since.get(pilot, now), now)
            for free, waiting in _left_over(work).items()
            for pilot in pilot_demand.newest_waiting(connection, *free, waiting)
        }
        patience = work.policy.director.cancel_after
        return [pilot for pilot, begin in self.since.items() if now - begin >= patience][:MOST]


def cancel_pilots(
    pool: Pool, tx: Transaction, work: Iteration, unneeded: Sequence[PilotId], now: float
) -> list[PilotId]:
    """Order the batch jobs of at most `CANCELLED_AT_ONCE` unneeded pilots to be killed; the pilots that got the order.

    A pilot that has called home meanwhile stays, as all do under another policy.
    """
    assert len(unneeded) <= CANCELLED_AT_ONCE
    if pool.policy is not work.policy:
        return []
    cancelled = []
    for row in pilots.by_ids(tx.connection, unneeded):
        if row.ended is None and row.started is None and not row.leave:
            tell_to_leave(pool, tx, row, LeaveOrder.KILL, REASON)
            record(
                tx.connection,
                pool.ids.events,
                at=now,
                kind="pilot-kill",
                actor="server",
                detail=f"pilot {row.id}: {REASON}",
                old=row.state,
                new=row.state,
            )
            cancelled.append(row.id)
    return cancelled


def has_waiting_pilots(pool: Pool) -> bool:
    """Whether a batch CE had live pilots in its last cycle, which may be unneeded without any waiting job."""
    batch = (name for name, ce in pool.policy.ces.items() if ce.type != "local")
    return any((note := pool.provisioning.directors.get(name)) is not None and note.pilots for name in batch)


def _left_over(work: Iteration) -> dict[tuple[str, str, str | None, str | None], int]:
    """(CE, type, owner, group) → waiting pilots that cover no job, of batch CEs."""
    waiting: Counter[tuple[str, str, str | None, str | None]] = Counter()
    for free in work.free:
        name = work.facts.ces[free.ce].name
        if free.waiting and work.policy.ces[name].type != "local":
            waiting[name, free.pilot_type, free.owner, free.group] += free.waiting
    return dict(waiting)
