"""The index of a pool: made for a policy, and made anew for another one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pilotage.core.policy import Policy
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import Head, HeadsRequest
from pilotage.core.shares.priorities import Priorities
from pilotage.services.pool.state import Pool
from pilotage.store.tables import jobs as job_rows
from pilotage.store.writer.transaction import Transaction


def rebuild_index(pool: Pool, tx: Transaction) -> None:
    """A new policy is in force: its index of the same waiting jobs, none of which is read again."""
    old = pool.index
    pool.index, pool.settling = new_index(pool, pool.policy, tx, pool.rng), None
    for queue, before in old.entries.items():
        entry = pool.entry(queue, before.identity)
        pool.index.add_queue(entry)
        pool.index.copy_waiting(entry, before)
    pool.limits.replace(tx, pool.policy.matching_limits())


def new_index(pool: Pool, policy: Policy, tx: Transaction, rng: Random) -> QueueIndex:
    """An empty index that reads its heads through the writer's connection: each a `store.jobs.Waiting`."""

    def heads(wanted: Sequence[HeadsRequest]) -> Sequence[Sequence[Head]]:
        loading = pool.filling
        if loading is not None and loading.at_once:
            return [()] * len(wanted)
        if pool.unwritten is not None:
            pool.unwritten()
        found = job_rows.queue_heads(tx.connection, wanted)
        pool.peers.check_heads(wanted, found)
        if loading is not None:
            # What is not counted yet is not given out yet.
            found = [[head for head in rows if pool.counts(head[0])] for rows in found]
        return found

    matching = policy.matching
    sharing = frozenset(group for group in policy.groups if policy.sharing(group))
    index = QueueIndex(
        heads,
        rule=matching.rule,
        cpu_buckets=matching.cpu_buckets,
        memory_buckets=matching.memory_buckets,
        priorities=Priorities(policy.shares(), sharing),
        rng=rng,
        shared=pool.peers.shared,
    )
    # Of one delta for all indexes: a new one goes on with the changes of the transaction that made it.
    index.delta = pool.peers.delta
    return index
