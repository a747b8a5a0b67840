"""The steps of the duty of dependent jobs, driven by hand."""

from __future__ import annotations

import pytest

from pilotage.services.jobs import dependants, parallel
from pilotage.services.pool.state import Pool
from pilotage.store.tables import chains, parallel_limits
from pilotage.store.writer.transaction import Transaction


def advance(pool: Pool, tx: Transaction, most: int, now: float) -> bool:
    """One transaction with all steps, of at most `most` rows each; whether nothing is left."""
    connection = tx.connection
    unmarked = chains.unmarked(connection, most)
    changes = chains.next_changes(connection, most)
    gates = chains.unsettled(connection, most)
    limits = parallel_limits.unsettled(connection, most)
    dependants.mark_parents(pool, tx, unmarked)
    if changes:
        dependants.decide_changes(tx, changes)
    if gates:
        dependants.move_dependants(pool, tx, gates, now)
    if limits:
        parallel.move_jobs(pool, tx, limits, now)
    return not (unmarked or changes or gates or limits)


def with_fan_out(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """Let a transaction process this number of jobs behind one gate."""
    monkeypatch.setattr(dependants, "FAN_OUT", jobs)
