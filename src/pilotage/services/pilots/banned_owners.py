"""Pilots that serve nobody but a banned user: they are of no use where the user is banned."""

from __future__ import annotations

from pilotage.core.pilots.orders import LeaveOrder, order_for
from pilotage.core.policy import Policy
from pilotage.services.pilots.orders import tell_to_leave
from pilotage.services.pool.state import Pool
from pilotage.store.tables import bans, pilots
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction

MOST = 100
"""Pilots told in one transaction at most."""


def send_away(pool: Pool, tx: Transaction) -> int:
    """Tell pilots that serve only a banned user to leave; how many. Call it again until it is 0.

    A pilot that waits is cancelled in its batch system. Bans that are enforced have been looked at.
    """
    leaving = 0
    for row in pool.offers.bans:
        if row.enforced is not None or leaving >= MOST:
            continue
        for pilot in pilots.by_ids(
            tx.connection, bans.pilots_bound_to(tx.connection, row.owner, row.site, MOST)
        ):
            if pilot.only_owner == row.owner or not _serves_group(pool.policy, pilot):
                order = order_for(LeaveOrder.DRAIN, called_home=pilot.started is not None)
                tell_to_leave(pool, tx, pilot, order, row.sentence)
                leaving += 1
    return leaving


def _serves_group(policy: Policy, pilot: PilotRow) -> bool:
    """Whether a private pilot serves every owner of its group."""
    return "JOB_SHARING" in policy.properties(pilot.owner, pilot.group)
