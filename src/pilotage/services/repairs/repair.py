"""The form of a repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.writer.transaction import Transaction

ACTOR = "server"
REASON = "repaired by `pilotage db check`"


@dataclass(slots=True)
class RepairRun:
    """The pool of a process that repairs, without counted jobs: it offers none. And the instant of the repairs."""

    pool: Pool
    now: float
    work_queue: WorkQueue = field(init=False)

    def __post_init__(self) -> None:
        self.work_queue = WorkQueue(self.pool)

    def moves(self, tx: Transaction) -> JobTransitions:
        """Moves of jobs. The caller writes them."""
        return JobTransitions(self.pool, tx, self.now, self.pool.event_batch(self.now, ACTOR))


Repair = Callable[[RepairRun, Transaction, Any], None]
"""(run, transaction, the ids that a check has found: a list of int or of str)"""
