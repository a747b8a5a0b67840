"""Shares at work: priorities settled off the hot path."""

from __future__ import annotations

from itertools import islice

from pilotage.services.pool import Pool

SETTLED_AT_ONCE = 250
"""Queues that take up a new priority in one turn of the writer: well below 5 ms."""


def settle_some(pool: Pool) -> bool:
    """Have the index take up some of the priorities that have changed; whether that was all. Writer's thread."""
    if pool.settling is None:
        pool.settling = pool.index.settle()
    done = sum(1 for _ in islice(pool.settling, SETTLED_AT_ONCE))
    if done < SETTLED_AT_ONCE:
        pool.settling = None
    return pool.settling is None
