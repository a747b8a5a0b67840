"""The bans in force in memory, as banned owners by site."""

from __future__ import annotations

from collections import defaultdict

from pilotage.services.pool.state import Pool
from pilotage.store.tables import bans
from pilotage.store.writer.transaction import Transaction


def load_bans(pool: Pool, tx: Transaction) -> bool:
    """Apply the bans of the store to the offers that are made from now on; whether they have changed."""
    rows = tuple(bans.in_force(tx.connection))
    if rows == pool.bans:
        return False
    pool.bans = rows
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        owners[row.site].add(row.owner)
    pool.offer_cache.set_banned({site: frozenset(banned) for site, banned in owners.items()})
    return True
