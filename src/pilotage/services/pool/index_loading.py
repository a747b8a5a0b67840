"""The pool is filled from the store when a server begins: at once, or while it answers.

Pilots report and are heard meanwhile; what is not counted yet is not given out yet. The one server of a file counts a
slice of ids in each turn of its writer. One of several counts all of one instant, with a reader's session and beside
its writer, and then goes on from there by the change rows of all servers, its own among them.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId, QueueId
from pilotage.core.policy import Policy
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.services.pool.index_setup import new_index
from pilotage.services.pool.peers import NoPeers, Peers, PeerUpdate, read_update
from pilotage.services.pool.shared_limits import database_peers
from pilotage.services.pool.state import Pool
from pilotage.store.cluster import changes
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.cluster.id_allocator import Counters, IdAllocator, SequentialIds
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import instance
from pilotage.store.tables import jobs as job_rows
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.tables.events import last_event
from pilotage.store.writer.transaction import Transaction

SLICE = 10_000
"""So many ids of jobs are looked at in one transaction."""

Counts = dict[QueueId, dict[int, int]]
"""Waiting jobs by queue and UserPriority."""


def open_pool(
    tx: Transaction,
    policy: Policy,
    *,
    version: int,
    incarnation: int,
    rng: Random,
    home_owner: str,
    id_floor: int = 0,
    filled: bool = True,
    peers: Peers | None = None,
    counters: Counters | None = None,
) -> Pool:
    """The pool of a store, with everything read that it keeps in memory. No id up to `id_floor` is given again.

    If it is not to be `filled` the waiting jobs are counted later, by `load_some`. `peers` and `counters`: of one
    of several servers on the same store.
    """
    numbers = _numbers(tx, id_floor, counters)
    pool = Pool(
        policy=policy,
        policy_version=version,
        incarnation=incarnation,
        events=numbers["events"],
        rng=rng,
        home_owner=home_owner,
        submission_ids=numbers["submissions"],
        job_ids=numbers["jobs"],
        pilot_ids=numbers.get("pilots"),
        identities={},
        peers=peers or NoPeers(),
    )
    current = instance.current_policy(tx.connection)
    # Which CEs the last change of the policy was about is not known any more.
    pool.ces_changed_at = dict.fromkeys(policy.ces, current.applied_at if current else 0.0)
    pool.index = new_index(pool, policy, tx, rng)
    begin_loading(pool, tx)
    while filled and not load_some(pool, tx):
        pass
    return pool


def _numbers(tx: Transaction, floor: int, counters: Counters | None) -> dict[str, IdAllocator]:
    """Where ids come from, by what they are the ids of."""
    last_submission, last_job = submission_rows.last_ids(tx.connection)
    last = {
        "events": last_event(tx.connection),
        "submissions": last_submission,
        "jobs": last_job,
        "pilots": pilot_rows.last_id(tx.connection),
    }
    if counters is None:
        return {name: SequentialIds(max(floor, number)) for name, number in last.items() if name != "pilots"}
    for name, number in last.items():
        counters.raise_floor(name, max(floor, number))
    return {name: counters.numbers(name) for name in last}


def begin_loading(pool: Pool, tx: Transaction) -> None:
    """Read the task queues and what pilots have.

    The waiting jobs follow: `load_some`, or `count_waiting` and `apply_counts`.
    """
    pool.stalled = set(job_rows.stalled_pilots(tx.connection))
    pool.unconfirmed = dict(pilot_rows.last_take_times(tx.connection))
    _begin_counting(pool, tx)


def _begin_counting(pool: Pool, tx: Transaction) -> None:
    pool.identities = dict(submission_rows.all_queues(tx.connection))
    pool.index.clear()
    pool.limits.replace(tx, pool.policy.matching_limits())
    pool.filling = pool.peers.begin_loading(tx)


def load_some(pool: Pool, tx: Transaction) -> bool:
    """Count the waiting jobs of some ids; whether all are counted. Between two of these others have their turn."""
    filling = pool.filling
    if filling is None:
        return True
    if filling.at_once:
        _apply_recount(pool, tx, *count_waiting(tx.connection))
        return True
    until = min(filling.top, filling.done_to + SLICE)
    for queue, weight, count, first in count_rows.waiting_between(tx.connection, filling.done_to, until):
        # What other requests of this transaction have done is counted too: if it fails all of that is not so.
        pool.touch_queue(tx, queue)
        pool.index.load_jobs(queue, weight, JobId(first), count)
    tx.set(filling, "done_to", until)
    if until < filling.top:
        return False
    for queue in filling.disturbed:
        pool.touch_queue(tx, queue)
    tx.set(pool, "filling", None)
    for queue in filling.disturbed:
        pool.reload_queue(tx, queue)
    return True


def count_waiting(connection: Connection) -> tuple[TransactionSnapshot, Counts]:
    """The waiting jobs of all queues, and which transactions that has seen. Any thread; where servers share a store."""
    return count_rows.waiting_counts_with_snapshot(connection)


def apply_counts(pool: Pool, tx: Transaction, seen: TransactionSnapshot, counts: Counts) -> None:
    """Have the index go on from a count that another session has made.

    What transactions have done that it has not seen is done to it: those of others as far as they have ended now, and
    all of this server's, which are told by their change rows and, of this transaction, by the notes of the index.
    """
    upto, told = changes.read_with_snapshot(tx.connection, seen.xmin)
    unseen: list[PeerUpdate | IndexDelta] = [
        read_update(change.payload) for change in told if not seen.saw(change.xid)
    ]
    if pool.peers.delta is not None:
        unseen.append(pool.peers.delta)
    # In any order: one may be told of a job that has gone before it is told that it came.
    moved: dict[tuple[QueueId, int], int] = defaultdict(int)
    for news in unseen:
        for queue, weight, _, more in news.back:
            moved[queue, weight] += more
        for queue, weight, *_ in news.gone:
            moved[queue, weight] -= 1
    now = {queue: dict(waiting) for queue, waiting in counts.items()}
    for (queue, weight), more in moved.items():
        of_queue = now.setdefault(queue, {})
        of_queue[weight] = of_queue.get(weight, 0) + more
    _apply_recount(pool, tx, upto, now)


def _apply_recount(pool: Pool, tx: Transaction, seen: TransactionSnapshot, counts: Counts) -> None:
    """These jobs wait, as was read with that snapshot, which the notes of others go on from."""
    database_peers(pool).loaded(seen)
    for queue in pool.index.entries:
        pool.index.reset_queue(queue, {})
    for queue, waiting in counts.items():
        left = {weight: jobs for weight, jobs in waiting.items() if jobs > 0}
        if left and enter(pool, tx, queue):
            pool.index.reset_queue(queue, left)
    tx.set(pool, "filling", None)


def enter(pool: Pool, tx: Transaction, queue: QueueId) -> bool:
    """Have the index know a queue; False: it has been forgotten since it was told of."""
    try:
        pool.enter_queue(tx, queue)
    except NotFound:
        return False
    return True


def reload_queues(pool: Pool, tx: Transaction) -> None:
    """Read the task queues and count their waiting jobs at once; what is known of pilots stays."""
    _begin_counting(pool, tx)
    while not load_some(pool, tx):
        pass


def load_all(pool: Pool, tx: Transaction) -> None:
    """Read everything at once."""
    begin_loading(pool, tx)
    while not load_some(pool, tx):
        pass
