"""Running limits where several servers share them: blocks are saved, borrowed and given back; duties set them right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pilotage.core.queues import limit_leases as rules
from pilotage.core.queues.limit_leases import Allocation, UnleasedRoom
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.shared_limits import Key, SharedLimiter
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.limits import SharedRunningLimits
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import limit_leases as rows
from pilotage.store.cluster import servers
from pilotage.store.engine.connection import database_time
from pilotage.store.tables import counts as count_rows
from pilotage.store.writer.transaction import Transaction

HELD = 2.0
"""Seconds for which a server keeps what it has borrowed when another one asks for it."""


def database_peers(pool: Pool) -> DatabasePeers:
    """The peers of a pool that is one of several."""
    assert isinstance(pool.peers, DatabasePeers)
    return pool.peers


def shared_limits(pool: Pool) -> SharedRunningLimits:
    """The limits of a pool that is one of several."""
    assert isinstance(pool.limits, SharedRunningLimits)
    return pool.limits


def rebalance(pool: Pool, tx: Transaction, now: float) -> None:
    """Borrow what is asked for, give back what is not used. To be called a few times a second."""
    limits, server = shared_limits(pool), pool.peers.server
    limiter = limits.limiter
    if not limiter.limits:
        return
    limits.save(tx)
    tx.on_rollback(lambda: limits.recount(tx))
    tx.set(limiter, "kept", dict(limiter.kept))
    states = rows.states(tx.connection, lock=True)
    now = database_time(tx.connection, now)
    everybody = rows.allocations(tx.connection)
    changed_states: dict[Key, UnleasedRoom] = {}
    changed: dict[Key, Allocation] = {}
    for limit in limiter.limits:
        key = limit.key
        shared, mine = states.get(key), everybody.get(key, {}).get(server)
        if shared is None or mine is None:
            continue
        others = tuple(b for name, b in everybody[key].items() if name != server)
        shared, mine = _rebalanced(limiter, limit, shared, mine, others, now)
        if shared != states[key]:
            states[key] = changed_states[key] = shared
        if mine != everybody[key][server]:
            everybody[key][server] = changed[key] = mine
    rows.save_states(tx.connection, changed_states)
    rows.save_allocations(tx.connection, server, changed)
    tx.set(limiter, "wanted", set())
    tx.set(limiter, "used", set())
    _read(limiter, server, states, everybody)


def _rebalanced(
    limiter: SharedLimiter,
    limit: Limit,
    shared: UnleasedRoom,
    mine: Allocation,
    others: tuple[Allocation, ...],
    now: float,
) -> tuple[UnleasedRoom, Allocation]:
    """What is borrowed is kept until another server asks, and then for long enough that a pilot can come for it."""
    key = limit.key
    wanted, had = key in limiter.wanted, mine
    if key in limiter.used:
        limiter.kept[key] = now
    asked_for = any(block.wants for block in others)
    if shared.free < 0 or (asked_for and not 0 <= now - limiter.kept.get(key, 0.0) < HELD):
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
    everybody: Mapping[Key, Mapping[str, Allocation]],
) -> None:
    mine = {key: having[server] for key, having in everybody.items() if server in having}
    others = {
        key: tuple(block for name, block in having.items() if name != server)
        for key, having in everybody.items()
    }
    limiter.read(states, mine, others)


def establish(pool: Pool, tx: Transaction, now: float) -> int:
    """Have the limits of the policy be there, and none else; how many were counted. A duty.

    A limit is counted when every server matches by this policy: from then on nothing starts under it without a place.
    """
    limits = shared_limits(pool)
    limiter = limits.limiter
    limits.save(tx)
    states = rows.states(tx.connection, lock=True)
    meant = {limit.key: limit for limit in limiter.limits}
    rows.delete_limits(tx.connection, states.keys() - meant.keys())
    if any(one.policy_version != pool.policy_version for one in servers.live(tx.connection)):
        return 0
    adopted = {key: rules.replace_limit(meant[key], shared) for key, shared in states.items() if key in meant}
    rows.save_states(tx.connection, {key: shared for key, shared in adopted.items() if shared != states[key]})
    missing = [
        limit
        for key, limit in meant.items()
        if key not in states or (limit.running is not None and adopted[key].running is None)
    ]
    if missing:
        _count(pool, tx, missing, adopted, now)
    return len(missing)


def check(pool: Pool, tx: Transaction, now: float) -> list[Limit]:
    """Count who is there under each limit; those that were reckoned wrong, and are set right. A duty."""
    limits = shared_limits(pool)
    limiter = limits.limiter
    if not limiter.limits:
        return []
    limits.save(tx)
    states = rows.states(tx.connection, lock=True)
    known = [limit for limit in limiter.limits if limit.running is not None and limit.key in states]
    return _count(pool, tx, known, states, now)


def _count(
    pool: Pool, tx: Transaction, limits: Iterable[Limit], states: Mapping[Key, UnleasedRoom], now: float
) -> list[Limit]:
    now = database_time(tx.connection, now)
    # One statement: a job that ends meanwhile has its place either still or in a block.
    held, everybody = count_rows.held_counts_and_allocations(tx.connection)
    saved: dict[Key, UnleasedRoom] = {}
    wrong = []
    for limit in limits:
        count = sum(
            number
            for queue, site, ce, number in held
            if limit.applies_at(site, ce) and limit.applies_to(pool.queue_identity(tx, queue))
        )
        before = states.get(limit.key) or rules.establish(limit, 0, now)
        having = everybody.get(rows.key_to_text(limit.key), [])
        after = rules.recount(limit, before, count, [Allocation(free=free) for free in having])
        if after != states.get(limit.key):
            saved[limit.key] = after
            wrong.append(limit)
    rows.save_states(tx.connection, saved)
    return wrong


def take_back_allocations(tx: Transaction, server: str) -> None:
    """What a server had that is given up is nobody's."""
    states = rows.states(tx.connection, lock=True)
    gone = rows.revoke(tx.connection, server)
    rows.save_states(
        tx.connection,
        {key: rules.evict(states[key], block) for key, block in gone.items() if key in states},
    )
