"""Running limits that several servers share: allocations are borrowed and returned, and duties correct the counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pilotage.core.queues import limit_leases as rules
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.shared_limits import Key, SharedLimiter
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.limits import SharedRunningLimits
from pilotage.services.pool.offer_state import OfferState
from pilotage.services.pool.peers import Peers
from pilotage.services.pool.state import Pool
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.store.cluster import limit_leases as rows
from pilotage.store.cluster import servers
from pilotage.store.engine.connection import database_time
from pilotage.store.tables import counts as count_rows
from pilotage.store.writer.transaction import Transaction

MIN_HOLD = 2.0
"""Seconds for which a server keeps borrowed room after another server has asked for it."""


def database_peers(peers: Peers) -> DatabasePeers:
    """The peers of a pool whose server shares its database."""
    assert isinstance(peers, DatabasePeers)
    return peers


def shared_limits(offers: OfferState) -> SharedRunningLimits:
    """The limits of a pool whose server shares its database."""
    assert isinstance(offers.limits, SharedRunningLimits)
    return offers.limits


def rebalance(pool: Pool, tx: Transaction, now: float) -> None:
    """Borrow room for jobs that need it, and return unused room. Called several times a second."""
    limits, server = shared_limits(pool.offers), pool.peers.server
    limiter = limits.limiter
    if not limiter.limits:
        return
    limits.save(tx)
    tx.on_rollback(lambda: limits.recount(tx))
    tx.set(limiter, "kept", dict(limiter.kept))
    states = rows.states(tx.connection, lock=True)
    now = database_time(tx.connection, now)
    allocations = rows.allocations(tx.connection)
    changed_states: dict[Key, UnleasedRoom] = {}
    changed: dict[Key, Allocation] = {}
    for limit in limiter.limits:
        key = limit.key
        shared, mine = states.get(key), allocations.get(key, {}).get(server)
        if shared is None or mine is None:
            continue
        others = tuple(other for name, other in allocations[key].items() if name != server)
        shared, mine = _rebalanced(limiter, limit, shared, mine, others, now)
        if shared != states[key]:
            states[key] = changed_states[key] = shared
        if mine != allocations[key][server]:
            allocations[key][server] = changed[key] = mine
    rows.save_states(tx.connection, changed_states)
    rows.save_allocations(tx.connection, server, changed)
    tx.set(limiter, "wanted", set())
    tx.set(limiter, "used", set())
    _read(limiter, server, states, allocations)


def _rebalanced(
    limiter: SharedLimiter,
    limit: Limit,
    shared: UnleasedRoom,
    mine: Allocation,
    others: tuple[Allocation, ...],
    now: float,
) -> tuple[UnleasedRoom, Allocation]:
    """The new state and allocation of one limit.

    Borrowed room is kept until another server asks for it, and then long enough for a pilot to take a job.
    """
    key = limit.key
    wanted, had = key in limiter.wanted, mine
    if key in limiter.used:
        limiter.kept[key] = now
    asked_for = any(allocation.wants for allocation in others)
    if shared.free < 0 or (asked_for and not 0 <= now - limiter.kept.get(key, 0.0) < MIN_HOLD):
        if limit.delay:
            shared = rules.refill(limit, shared, [mine, *others], now)
        shared, mine = rules.give_back(limit, shared, mine, Allocation())
    if wanted and (mine.free, mine.starts) == (had.free, had.starts):
        shared, mine = rules.lend(limit, shared, mine, others, now)
        if (mine.free, mine.starts) != (had.free, had.starts):
            limiter.kept[key] = now
    short = wanted and not rules.may_start(limit, shared, mine)
    if mine.wants != short:
        mine = replace(mine, wants=short)
    return shared, mine


def _read(
    limiter: SharedLimiter,
    server: str,
    states: Mapping[Key, UnleasedRoom],
    allocations: Mapping[Key, Mapping[str, Allocation]],
) -> None:
    mine = {key: by_server[server] for key, by_server in allocations.items() if server in by_server}
    others = {
        key: tuple(allocation for name, allocation in by_server.items() if name != server)
        for key, by_server in allocations.items()
    }
    limiter.read(states, mine, others)


def establish(pool: Pool, tx: Transaction, now: float) -> int:
    """Store exactly the limits of the policy. Returns how many were counted. Called by a duty.

    Limits are counted once every server matches by this policy. From then on every start takes room of the limit.
    """
    limits = shared_limits(pool.offers)
    limiter = limits.limiter
    limits.save(tx)
    states = rows.states(tx.connection, lock=True)
    limits_by_key = {limit.key: limit for limit in limiter.limits}
    rows.delete_limits(tx.connection, states.keys() - limits_by_key.keys())
    if any(server.policy_version != pool.server.policy_version for server in servers.live(tx.connection)):
        return 0
    adopted = {
        key: rules.replace_limit(limits_by_key[key], shared)
        for key, shared in states.items()
        if key in limits_by_key
    }
    rows.save_states(tx.connection, {key: shared for key, shared in adopted.items() if shared != states[key]})
    missing = [
        limit
        for key, limit in limits_by_key.items()
        if key not in states or (limit.running is not None and adopted[key].running is None)
    ]
    if missing:
        _count(pool.queues, tx, missing, adopted, now)
    return len(missing)


def check(pool: Pool, tx: Transaction, now: float) -> list[Limit]:
    """Count the running jobs under each limit. Returns the limits with wrong counts, corrected. Called by a duty."""
    limits = shared_limits(pool.offers)
    limiter = limits.limiter
    if not limiter.limits:
        return []
    limits.save(tx)
    states = rows.states(tx.connection, lock=True)
    known = [limit for limit in limiter.limits if limit.running is not None and limit.key in states]
    return _count(pool.queues, tx, known, states, now)


def _count(
    queues: TaskQueues,
    tx: Transaction,
    limits: Iterable[Limit],
    states: Mapping[Key, UnleasedRoom],
    now: float,
) -> list[Limit]:
    now = database_time(tx.connection, now)
    # One statement: the room of a job that ends meanwhile is either still held or in an allocation.
    held, allocations = count_rows.held_counts_and_allocations(tx.connection)
    saved: dict[Key, UnleasedRoom] = {}
    wrong = []
    for limit in limits:
        count = sum(
            number
            for queue, site, ce, number in held
            if limit.applies_at(site, ce) and limit.applies_to(queues.identity(tx, queue))
        )
        before = states.get(limit.key) or rules.establish(limit, 0, now)
        free_room = allocations.get(rows.key_to_text(limit.key), [])
        after = rules.recount(limit, before, count, [Allocation(free=free) for free in free_room])
        if after != states.get(limit.key):
            saved[limit.key] = after
            wrong.append(limit)
    rows.save_states(tx.connection, saved)
    return wrong


def take_back_allocations(tx: Transaction, server: str) -> None:
    """Free the allocations of an evicted server."""
    states = rows.states(tx.connection, lock=True)
    gone = rows.revoke(tx.connection, server)
    rows.save_states(
        tx.connection,
        {key: rules.evict(states[key], allocation) for key, allocation in gone.items() if key in states},
    )
