"""Applies the changes that other servers of the same database have committed to this server's memory.

The counts of waiting jobs follow the others' change rows exactly. A change is skipped if memory was read from the
store after the change's transaction. A recount checks the counts, a few queues at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core import policy as policies
from pilotage.core.ids import PilotId, QueueId
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.services.pilots.lifecycle import forget_unheard
from pilotage.services.policy.apply import apply_in_memory
from pilotage.services.policy.bans import read_bans
from pilotage.services.policy.site_states import read_site_states
from pilotage.services.pool.ce_information import read_ce_information
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.index_loading import reload_all
from pilotage.services.pool.peers import PeerUpdate, read_update
from pilotage.services.pool.server_state import ServerState
from pilotage.services.pool.shared_limits import database_peers
from pilotage.services.pool.state import Pool
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.services.pool.token_state import read_token_state
from pilotage.services.shares.corrections import read_corrections
from pilotage.store.cluster import changes
from pilotage.store.cluster.changes import ChangeBatch, ChangeRow
from pilotage.store.engine.connection import database_time
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import instance, pilots
from pilotage.store.writer.transaction import Transaction

CHANGES_KEPT = 600.0
"""Seconds for which change rows are kept. A server that has not read them by then reloads everything."""

RECOUNT_SIZE = 200
"""Queues counted in one transaction of a recount."""


def apply_changes(pool: Pool, tx: Transaction, batch: ChangeBatch) -> None:
    """Apply changes of other servers. They are committed, so a rollback of `tx` does not revert them in memory."""
    peers = database_peers(pool.peers)
    if batch.pruned:
        peers.position = batch.position
        reload_all(pool, tx)
        follow_rules(pool, tx)
        read_ce_information(pool.ces, tx)
        return
    for change in batch.changes:
        # The writer may run this request again after a rollback: no change is applied twice.
        if change.xid >= peers.position:
            _apply(pool, tx, change)
            peers.position = change.xid + (change is batch.changes[-1])
    peers.position = max(peers.position, batch.position)
    peers.seen = {queue: seen for queue, seen in peers.seen.items() if seen.xmax > peers.position}
    if batch.rules != peers.rules:
        follow_rules(pool, tx)
    _count_uncertain(pool, tx)


def has_news(peers: DatabasePeers, batch: ChangeBatch) -> bool:
    """Whether `apply_changes` has anything to do."""
    return bool(batch.changes or batch.pruned or peers.uncertain) or batch.rules != peers.rules


def _apply(pool: Pool, tx: Transaction, change: ChangeRow) -> None:
    update = read_update(change.payload)
    _apply_delta(pool, tx, change.xid, update)
    pool.jobs.followed = {**pool.jobs.followed, **update.followed}
    if update.queues:
        pool.forget_queues(tx, update.queues)
    # Before that: it may tell the end of the same pilots.
    pool.pilots.uses.update(update.uses)
    if update.pilots:
        _forget_pilots(pool, tx, update.pilots)
    if update.information:
        read_ce_information(pool.ces, tx, update.information)
    if update.corrected:
        read_corrections(pool, tx)


def follow_rules(pool: Pool, tx: Transaction) -> None:
    """Read again which users, tokens and sites the store allows, if any server has changed that."""
    peers = database_peers(pool.peers)
    # A change that is committed after this look is read at once, and then once more.
    rules = changes.rules(tx.connection)
    if rules != peers.rules:
        _apply_policy(pool, tx)
        read_bans(pool, tx)
        read_site_states(pool, tx)
        _apply_tokens(pool.server, tx)
        peers.rules = rules


def _forget_pilots(pool: Pool, tx: Transaction, ids: Sequence[PilotId]) -> None:
    """Forget pilots that another server listens to now, or has ended, unless they have called here since."""
    known = [
        pilot
        for pilot in ids
        if pilot in pool.pilots.last_seen
        or pilot in pool.pilots.finished
        or pilot in pool.shares.turns.running
        or pilot in pool.pilots.heard
        or pilot in pool.pilots.uses
    ]
    running = pilots.servers_of_running(tx.connection, known) if known else {}
    for pilot in known:
        if running.get(pilot) != pool.peers.server:
            forget_unheard(pool, tx, pilot)


def _apply_delta(pool: Pool, tx: Transaction, xid: int, update: PeerUpdate) -> None:
    peers = database_peers(pool.peers)
    applies: dict[QueueId, bool] = {}
    for queue, *_ in (*update.back, *update.gone):
        if queue not in applies:
            applies[queue] = not peers.saw(queue, xid) and pool.queues.try_add(tx, queue)
    delta = IndexDelta(
        gone=[change for change in update.gone if applies[change[0]]],
        back=[change for change in update.back if applies[change[0]]],
    )
    if delta:
        pool.queues.index.apply_peer_delta(delta)


def _count_uncertain(pool: Pool, tx: Transaction) -> None:
    """Recount queues that had fewer jobs in the store than in memory, at most `RECOUNT_SIZE` per call."""
    peers = database_peers(pool.peers)
    if peers.uncertain and pool.queues.loading is None:
        queues = sorted(peers.uncertain)[:RECOUNT_SIZE]
        recount(pool, tx, queues)
        peers.uncertain.difference_update(queues)


def _apply_tokens(server: ServerState, tx: Transaction) -> None:
    server.token_state = read_token_state(tx.connection, database_time(tx.connection, 0.0))


def _apply_policy(pool: Pool, tx: Transaction) -> None:
    current = instance.current_policy(tx.connection)
    if current is not None and current.version > pool.server.policy_version:
        apply_in_memory(pool, tx, policies.parse(current.text), current.version)


def recount(pool: Pool, tx: Transaction, queues: Sequence[QueueId]) -> int:
    """Count the waiting jobs of these queues in the store, and correct memory. Returns how many queues were wrong."""
    peers = database_peers(pool.peers)
    snapshot, counts = count_rows.waiting_counts_with_snapshot(tx.connection, queues)
    pending = _pending_changes(pool, tx, snapshot)
    wrong = 0
    for queue in queues:
        entry = pool.queues.index.entries.get(queue)
        in_memory = {w: level.count for w, level in entry.levels.items()} if entry is not None else {}
        for weight, change in pending.get(queue, {}).items():
            in_memory[weight] = in_memory.get(weight, 0) + change
        stored = counts.get(queue, {})
        if {w: n for w, n in in_memory.items() if n} == stored:
            continue
        wrong += queue not in peers.uncertain
        if pool.queues.try_add(tx, queue):
            pool.queues.index.reset_queue(queue, stored)
            peers.seen[queue] = snapshot
    peers.differences += wrong
    return wrong


def _pending_changes(
    pool: Pool, tx: Transaction, snapshot: changes.TransactionSnapshot
) -> dict[QueueId, dict[int, int]]:
    """Changes of other servers that a snapshot includes and memory does not yet, by queue and UserPriority."""
    peers = database_peers(pool.peers)
    pending: dict[QueueId, dict[int, int]] = {}
    for change in changes.read_all_since(tx.connection, peers.position, peers.server):
        if not snapshot.saw(change.xid):
            continue
        update = read_update(change.payload)
        moves = [(queue, weight, count) for queue, weight, _, count in update.back]
        moves += [(queue, weight, -1) for queue, weight, *_ in update.gone]
        for queue, weight, count in moves:
            if not peers.saw(queue, change.xid):
                of_queue = pending.setdefault(queue, {})
                of_queue[weight] = of_queue.get(weight, 0) + count
    return pending


def all_queues(queues: TaskQueues) -> list[QueueId]:
    """The queues that a recount counts."""
    return sorted({*queues.identities, *queues.index.entries})
