"""Sites that an administrator drains, takes down, and enables again.

A state is a row, and every server has the rows in memory. A transaction that fails reads them again.
"""

from __future__ import annotations

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.sites import SiteState
from pilotage.services.matching.known_offers import rekey_offer_stats
from pilotage.services.pool.offer_state import OfferState
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.site_rules import load_site_states
from pilotage.services.pool.state import Pool
from pilotage.store.tables import site_states
from pilotage.store.tables.events import record
from pilotage.store.tables.site_states import SiteStateRow
from pilotage.store.writer.transaction import Transaction

SERVER = "server"


def read_site_states(pool: Pool, tx: Transaction) -> None:
    """Apply the states of sites in the store to this server's offers."""
    if load_site_states(pool.offers, tx):
        rekey_offer_stats(pool)


def set_site_state(
    pool: Pool,
    tx: Transaction,
    site: str,
    state: SiteState,
    *,
    by: str,
    reason: str,
    now: float,
    until: float | None = None,
) -> SiteStateRow:
    """Drain a site, take it down, or make it normal. Running jobs go on.

    Raises `NotFound` for a site that neither the policy nor a row knows, `InvalidInput` for a bad `until`.
    """
    if site not in pool.policy.sites and site not in pool.offers.site_states:
        raise NotFound(f"the policy has no site {site}", hint="see `pilotage site list`")
    if until is not None and state is SiteState.NORMAL:
        raise InvalidInput("until: a normal site has no end", field="until")
    if until is not None and until <= now:
        raise InvalidInput("until: the instant is in the past", field="until")
    row = SiteStateRow(site, state, by, reason, now, until)
    _save(pool, tx, row)
    return row


def has_ended(offers: OfferState, now: float) -> bool:
    """Whether the time of a state is over."""
    return any(row.until is not None and row.until <= now for row in offers.site_states.values())


def end_states(pool: Pool, tx: Transaction, now: float) -> int:
    """Make sites normal when the time of their state is over; the number of sites.

    Another server may have given a site another state or end: the row decides.
    """
    tx.on_rollback(lambda: read_site_states(pool, tx))
    ended = 0
    for row in list(pool.offers.site_states.values()):
        due = row.until is not None and row.until <= now
        if due and site_states.delete_if_over(tx.connection, row.site, now):
            _record(pool, tx, SiteStateRow(row.site, SiteState.NORMAL, SERVER, "its time is over", now))
            ended += 1
        elif due:
            read_site_states(pool, tx)
    return ended


def _save(pool: Pool, tx: Transaction, row: SiteStateRow) -> None:
    tx.on_rollback(lambda: read_site_states(pool, tx))
    if row.state is SiteState.NORMAL:
        site_states.delete(tx.connection, row.site)
    else:
        site_states.save(tx.connection, row)
    _record(pool, tx, row)


def _record(pool: Pool, tx: Transaction, row: SiteStateRow) -> None:
    """Record a new state of a site, and apply it at all servers."""
    known = pool.offers.site_states.get(row.site)
    record(
        tx.connection,
        pool.ids.events,
        at=row.since,
        kind="site",
        actor=row.changed_by if row.changed_by == SERVER else f"user:{row.changed_by}",
        detail=f"site {row.site}" + (f": {row.reason}" if row.reason else ""),
        old=str(SiteState.NORMAL if known is None else known.state),
        new=str(row.state),
    )
    read_site_states(pool, tx)
    pool.peers.publish(tx, PeerUpdate(rules=True))
