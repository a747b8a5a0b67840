"""Storing and applying a new policy."""

from __future__ import annotations

from pilotage.core.errors import Conflict
from pilotage.core.policy import Policy
from pilotage.services.matching.known_offers import rekey_offer_stats
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.index_loading import rebuild_index, reload_queues
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.tables import instance
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction


def apply_policy(
    pool: Pool,
    tx: Transaction,
    policy: Policy,
    text: str,
    *,
    by: str,
    reason: str,
    now: float,
    expect: int | None = None,
) -> int:
    """Store a checked policy, and match by it from this transaction on. Returns its version.

    The index is rebuilt, since buckets, shares and limits may have changed. Raises `Conflict` if the version in force
    is not `expect`: another administrator has applied a policy meanwhile.
    """
    instance.lock_row(tx.connection)
    old = in_force(tx)
    need_version(old, expect)
    before = (pool.policy, pool.server.policy_version, pool.queues.index, pool.ces.changed_at)
    rates = pool.offers.limits.limiter.rates()

    def undo() -> None:
        pool.policy, pool.server.policy_version, pool.queues.index, pool.ces.changed_at = before
        reload_queues(pool, tx)
        pool.offers.limits.limiter.restore(rates)
        rekey_offer_stats(pool)

    tx.on_rollback(undo)
    version = instance.save_policy(tx.connection, text=text, now=now, by=by, reason=reason)
    record_change(pool.ids, tx, old, version, by=by, reason=reason, now=now)
    pool.offers.limits.invalidate_counts(tx, policy)
    apply_in_memory(pool, tx, policy, version)
    pool.peers.publish(tx, PeerUpdate(rules=True))
    return version


def apply_in_memory(pool: Pool, tx: Transaction, policy: Policy, version: int) -> None:
    """Match by a policy that has been stored."""
    current = instance.current_policy(tx.connection)
    changed = [name for name, ce in policy.ces.items() if pool.policy.ces.get(name) != ce]
    pool.ces.changed_at = {
        **pool.ces.changed_at,
        **dict.fromkeys(changed, current.applied_at if current else 0.0),
    }
    pool.policy, pool.server.policy_version = policy, version
    pool.ces.ads.retain(policy.ces)
    pool.ces.brokering.retain(policy.ces)
    pool.ces.forwardings.retain(policy.ces)
    rebuild_index(pool, tx)
    pool.offers.other_folders.forget()
    rekey_offer_stats(pool)
    pool.queues.index.priorities.correct(pool.shares.corrections.groups, pool.shares.corrections.owners)
    pool.peers.report_policy(tx, version)


def record_change(
    ids: IdAllocators, tx: Transaction, old: int, version: int, *, by: str, reason: str, now: float
) -> None:
    """Store the event of a new policy: who applied it, when and why, and both versions."""
    detail = f"version {old} to version {version}" + (f": {reason}" if reason else "")
    record(
        tx.connection,
        ids.events,
        at=now,
        kind="policy",
        actor=f"user:{by}",
        detail=detail,
        old=str(old),
        new=str(version),
    )


def roll_back(
    pool: Pool,
    tx: Transaction,
    policy: Policy,
    earlier: instance.PolicyRow,
    *,
    by: str,
    reason: str,
    now: float,
    expect: int | None = None,
) -> int:
    """Apply an earlier version again, as a new version. `policy` is parsed from the text of `earlier`."""
    if earlier.version == in_force(tx):
        raise Conflict(f"version {earlier.version} is in force", hint="see `pilotage policy history`")
    why = f"rollback to version {earlier.version}" + (f": {reason}" if reason else "")
    return apply_policy(pool, tx, policy, earlier.text, by=by, reason=why, now=now, expect=expect)


def in_force(tx: Transaction) -> int:
    """The version in force; 0 if no policy has been stored."""
    current = instance.current_policy(tx.connection)
    return current.version if current else 0


def need_version(current: int, expect: int | None) -> None:
    """Raise `Conflict` unless `current` is the expected version. None expects any version."""
    if expect is not None and current != expect:
        hint = "see `pilotage policy history`, and `pilotage policy diff` with your file; then apply it to that one"
        raise Conflict(f"version {current} of the policy is in force, not {expect}", hint=hint)
