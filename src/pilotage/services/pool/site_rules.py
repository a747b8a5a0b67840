"""Bans of users and states of sites in memory, as the offers of pilots need them."""

from __future__ import annotations

from collections import defaultdict

from pilotage.core.sites import SiteState
from pilotage.services.pool.offer_state import OfferState
from pilotage.store.tables import bans, site_states
from pilotage.store.writer.transaction import Transaction


def load_bans(offers: OfferState, tx: Transaction) -> bool:
    """Apply the bans of the store to the offers that are made from now on; whether they have changed."""
    rows = tuple(bans.in_force(tx.connection))
    if rows == offers.bans:
        return False
    offers.bans = rows
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        owners[row.site].add(row.owner)
    offers.cache.set_banned({site: frozenset(banned) for site, banned in owners.items()})
    return True


def load_site_states(offers: OfferState, tx: Transaction) -> bool:
    """Apply the states of sites in the store to the offers that are made from now on; whether they have changed."""
    rows = site_states.load(tx.connection)
    if rows == offers.site_states:
        return False
    offers.site_states = rows
    offers.cache.set_down(frozenset(site for site, row in rows.items() if row.state is SiteState.DOWN))
    return True
