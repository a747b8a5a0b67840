"""The index of a pool: created for a policy, and rebuilt when a new policy is applied."""

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
    """Replace the index by one for the new policy. The waiting jobs are copied, not read again."""
    queues = pool.queues
    old = queues.index
    queues.index, queues.priority_updates = new_index(pool, pool.policy, tx, pool.rng), None
    for queue, before in old.entries.items():
        entry = queues.new_entry(queue, before.identity)
        queues.index.add_queue(entry)
        queues.index.copy_waiting(entry, before)
    pool.offers.limits.replace(tx, pool.policy.matching_limits())


def new_index(pool: Pool, policy: Policy, tx: Transaction, rng: Random) -> QueueIndex:
    """An empty index. It reads its heads through the writer's connection, each as a `store.jobs.Waiting`."""
    queues = pool.queues

    def read_heads(wanted: Sequence[HeadsRequest]) -> Sequence[Sequence[Head]]:
        loading = queues.loading
        if loading is not None and loading.in_snapshot:
            return [()] * len(wanted)
        if queues.flush_transitions is not None:
            queues.flush_transitions()
        heads = job_rows.queue_heads(tx.connection, wanted)
        pool.peers.check_heads(wanted, heads)
        if loading is not None:
            # Jobs are offered only after they have been counted.
            heads = [[head for head in rows if queues.is_counted(head[0])] for rows in heads]
        return heads

    matching = policy.matching
    sharing = frozenset(group for group in policy.groups if policy.sharing(group))
    index = QueueIndex(
        read_heads,
        rule=matching.rule,
        cpu_buckets=matching.cpu_buckets,
        memory_buckets=matching.memory_buckets,
        priorities=Priorities(policy.shares(), sharing),
        rng=rng,
        shared=pool.peers.shared,
    )
    # All indexes share one delta: a new index continues with the changes of the transaction that created it.
    index.delta = pool.peers.delta
    return index
