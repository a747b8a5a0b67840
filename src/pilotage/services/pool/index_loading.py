"""The index of a pool: loaded at a server's start, at once or beside its work, and rebuilt for a new policy.

While the index loads, the server answers pilots and clients. A job is offered only after it has been counted. A single
server counts a slice of job ids in each transaction of its writer. One of several servers counts all jobs in one
snapshot, in a reader's session beside its writer. It then applies the changes that the snapshot has not seen, from
the change rows of all servers, its own included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from pilotage.core.ids import JobId, QueueId
from pilotage.core.policy import Policy
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.core.queues.indexed_queue import Head, HeadsRequest
from pilotage.core.secret_source import SecretSource
from pilotage.core.shares.priorities import Priorities
from pilotage.services.pool.ce_information import read_ce_information
from pilotage.services.pool.ids import IdAllocators
from pilotage.services.pool.peers import NoPeers, Peers, PeerUpdate, read_update
from pilotage.services.pool.server_state import ServerState
from pilotage.services.pool.shared_limits import database_peers
from pilotage.services.pool.site_rules import load_bans, load_site_states
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import changes
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.cluster.id_allocator import Counters, SequentialIds
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import held_jobs, instance
from pilotage.store.tables import jobs as job_rows
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.tables.events import last_event
from pilotage.store.writer.transaction import Transaction

SLICE = 10_000
"""Job ids per transaction of loading."""

Counts = dict[QueueId, dict[int, int]]
"""Waiting jobs by queue and UserPriority."""


def open_pool(
    tx: Transaction,
    policy: Policy,
    *,
    version: int,
    incarnation: int,
    rng: Random,
    secrets: SecretSource,
    home_owner: str,
    id_floor: int = 0,
    load: bool = True,
    peers: Peers | None = None,
    counters: Counters | None = None,
) -> Pool:
    """Create the pool of a store, and load it. Ids up to `id_floor` are not allocated again.

    Without `load` the caller counts the waiting jobs later, with `load_slice`. `peers` and `counters` are needed when
    several servers share the store.
    """
    pool = Pool(
        policy=policy,
        server=ServerState(incarnation, version, home_owner),
        ids=_open_ids(tx, id_floor, counters),
        rng=rng,
        secrets=secrets,
        peers=peers or NoPeers(),
    )
    current = instance.current_policy(tx.connection)
    # The store does not tell which CEs the last change of the policy concerned.
    pool.ces.changed_at = dict.fromkeys(policy.ces, current.applied_at if current else 0.0)
    pool.queues.index = new_index(pool, policy, tx, rng)
    load_bans(pool.offers, tx)
    load_site_states(pool.offers, tx)
    read_ce_information(pool.ces, tx)
    begin_loading(pool, tx)
    while load and not load_slice(pool, tx):
        pass
    return pool


def _open_ids(tx: Transaction, floor: int, counters: Counters | None) -> IdAllocators:
    last_submission, last_job = submission_rows.last_ids(tx.connection)
    last = {"events": last_event(tx.connection), "submissions": last_submission, "jobs": last_job}
    if counters is None:
        return IdAllocators(**{kind: SequentialIds(max(floor, id_)) for kind, id_ in last.items()})
    last["pilots"] = pilot_rows.last_id(tx.connection)
    for kind, id_ in last.items():
        counters.raise_floor(kind, max(floor, id_))
    return IdAllocators(**{kind: counters.numbers(kind) for kind in last})


def begin_loading(pool: Pool, tx: Transaction) -> None:
    """Read the task queues and the state of pilots.

    The caller then counts the waiting jobs: with `load_slice`, or with `count_waiting` and `apply_counts`.
    """
    pool.pilots.stalled = set(held_jobs.stalled_pilots(tx.connection))
    pool.pilots.unconfirmed = dict(pilot_rows.unconfirmed_since(tx.connection))
    _begin_counting(pool, tx)


def _begin_counting(pool: Pool, tx: Transaction) -> None:
    pool.queues.identities = dict(submission_rows.all_queues(tx.connection))
    pool.queues.index.clear()
    pool.offers.limits.replace(tx, pool.policy.matching_limits())
    pool.queues.loading = pool.peers.begin_loading(tx)


def load_slice(pool: Pool, tx: Transaction) -> bool:
    """Count the waiting jobs among the next `SLICE` ids. Returns whether all jobs are counted.

    The writer runs other requests between two slices.
    """
    queues, loading = pool.queues, pool.queues.loading
    if loading is None:
        return True
    if loading.in_snapshot:
        _replace_counts(pool, tx, *count_waiting(tx.connection))
        return True
    until = min(loading.last_job, loading.counted_to + SLICE)
    for queue, weight, count, first in count_rows.waiting_between(tx.connection, loading.counted_to, until):
        # The count includes changes by earlier requests of this transaction, which a rollback would revert.
        queues.touch(tx, queue)
        queues.index.load_jobs(queue, weight, JobId(first), count)
    tx.set(loading, "counted_to", until)
    if until < loading.last_job:
        return False
    for queue in loading.to_recount:
        queues.touch(tx, queue)
    tx.set(queues, "loading", None)
    for queue in loading.to_recount:
        queues.reload(tx, queue)
    return True


def count_waiting(connection: Connection) -> tuple[TransactionSnapshot, Counts]:
    """Count the waiting jobs of all queues in one snapshot, where servers share a store. Any thread may call it."""
    return count_rows.waiting_counts_with_snapshot(connection)


def apply_counts(pool: Pool, tx: Transaction, snapshot: TransactionSnapshot, counts: Counts) -> None:
    """Load the index from counts that another session made in `snapshot`.

    Replay every change committed after the snapshot: from the change rows of all servers, which include this server,
    and from the index delta of this transaction.
    """
    upto, rows = changes.read_with_snapshot(tx.connection, snapshot.xmin)
    unseen: list[PeerUpdate | IndexDelta] = [
        read_update(change.payload) for change in rows if not snapshot.saw(change.xid)
    ]
    if pool.peers.delta is not None:
        unseen.append(pool.peers.delta)
    # Sums do not depend on the order: a job may be reported gone before it is reported added.
    changed: dict[tuple[QueueId, int], int] = defaultdict(int)
    for update in unseen:
        for queue, weight, _, added in update.back:
            changed[queue, weight] += added
        for queue, weight, *_ in update.gone:
            changed[queue, weight] -= 1
    current = {queue: dict(waiting) for queue, waiting in counts.items()}
    for (queue, weight), change in changed.items():
        of_queue = current.setdefault(queue, {})
        of_queue[weight] = of_queue.get(weight, 0) + change
    _replace_counts(pool, tx, upto, current)


def _replace_counts(pool: Pool, tx: Transaction, snapshot: TransactionSnapshot, counts: Counts) -> None:
    """Replace the counts of the index by the counts of `snapshot`. Later changes of peers apply to them."""
    database_peers(pool.peers).loaded(snapshot)
    queues = pool.queues
    for queue in queues.index.entries:
        queues.index.reset_queue(queue, {})
    for queue, waiting in counts.items():
        left = {weight: jobs for weight, jobs in waiting.items() if jobs > 0}
        if left and queues.try_add(tx, queue):
            queues.index.reset_queue(queue, left)
    tx.set(queues, "loading", None)


def reload_queues(pool: Pool, tx: Transaction) -> None:
    """Read the task queues and count their waiting jobs at once. The state of pilots is kept."""
    _begin_counting(pool, tx)
    while not load_slice(pool, tx):
        pass


def reload_all(pool: Pool, tx: Transaction) -> None:
    """Read the task queues, their waiting jobs and the state of pilots at once."""
    begin_loading(pool, tx)
    while not load_slice(pool, tx):
        pass


def new_index(pool: Pool, policy: Policy, tx: Transaction, rng: Random) -> QueueIndex:
    """An empty index. It reads its heads through the writer's connection, each as a `WaitingJob`."""
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
    index.delta, index.own_part = pool.peers.delta, pool.peers.own_part
    return index


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
