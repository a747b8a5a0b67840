"""Taking up a new policy."""

from __future__ import annotations

from pilotage.core.policy import Policy
from pilotage.services.offers import renew_kinds
from pilotage.services.pool import Pool, fill, new_index
from pilotage.store import instance
from pilotage.store.events import record
from pilotage.store.writer import Transaction


def apply_policy(
    pool: Pool, tx: Transaction, policy: Policy, text: str, *, by: str, reason: str, now: float
) -> int:
    """Store a policy that has been checked, and match by it from this transaction on; its version.

    The index is made anew: buckets, shares and limits may all have changed.
    """
    before = (pool.policy, pool.policy_version, pool.index)

    def undo() -> None:
        pool.policy, pool.policy_version, pool.index = before
        fill(pool, tx)
        renew_kinds(pool)

    tx.on_rollback(undo)
    version = instance.save_policy(tx.connection, text=text, now=now, by=by, reason=reason)
    detail = f"version {version}: {reason}" if reason else f"version {version}"
    record(tx.connection, pool.events, at=now, kind="policy", actor=f"user:{by}", detail=detail)
    pool.policy, pool.policy_version = policy, version
    pool.index, pool.settling = new_index(policy, tx), None
    fill(pool, tx)
    renew_kinds(pool)
    pool.index.priorities.correct(pool.corrections.groups, pool.corrections.owners)
    return version
