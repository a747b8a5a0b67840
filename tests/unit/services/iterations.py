"""A whole iteration of the director in one step, as tests want it."""

from __future__ import annotations

from random import Random

from pilotage.services.director.demand import Iteration, prepare, read_counts
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection


def run_iteration(pool: Pool, connection: Connection, rng: Random, now: float) -> Iteration:
    """An iteration by the duty's steps, without pauses; nothing is ordered."""
    counts = read_counts(connection, pool.policy, dict(pool.provisioning.orders), now)
    work = next(step for step in prepare(pool, counts, {}, now) if step is not None)
    for _ in work.decide(rng):
        pass
    return work
