"""Following the other servers of one database: what they have committed is done to the memory of this one.

Counts follow the others' notes exactly: what a note says is left out where memory was read from the store after the
note's transaction. A recount checks that, some queues at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core import policy as policies
from pilotage.core.ids import QueueId
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.services.policy.apply import apply_in_memory
from pilotage.services.pool.index_loading import enter, load_all
from pilotage.services.pool.peers import PeerUpdate, read_update
from pilotage.services.pool.shared_limits import database_peers
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import read_corrections
from pilotage.store.cluster import changes
from pilotage.store.cluster.changes import ChangeBatch, ChangeRow
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction

KEPT = 600.0
"""Seconds for which change rows are kept. Whoever has not read them by then counts everything anew."""

CHUNK = 200
"""So many queues are counted in one transaction of a recount."""


def apply_changes(pool: Pool, tx: Transaction, found: ChangeBatch) -> None:
    """Do what the others have done. What was done is done, whatever becomes of this transaction."""
    peers = database_peers(pool)
    if found.pruned:
        peers.position = found.position
        load_all(pool, tx)
        _apply_policy(pool, tx)
        return
    for change in found.changes:
        # Carried out again after a roll-back, it is not done twice.
        if change.xid >= peers.position:
            _do(pool, tx, change)
            peers.position = change.xid + (change is found.changes[-1])
    peers.position = max(peers.position, found.position)
    peers.seen = {queue: seen for queue, seen in peers.seen.items() if seen.xmax > peers.position}
    _count_uncertain(pool, tx)


def _do(pool: Pool, tx: Transaction, change: ChangeRow) -> None:
    news = read_update(change.payload)
    _do_notes(pool, tx, change.xid, news)
    pool.followed = {**pool.followed, **news.followed}
    if news.queues:
        pool.forget_queues(tx, news.queues)
    if news.moved:
        pool.seen = {pilot: seen + news.moved for pilot, seen in pool.seen.items()}
    if news.policy > pool.policy_version:
        _apply_policy(pool, tx)
    if news.corrected:
        read_corrections(pool, tx)


def _do_notes(pool: Pool, tx: Transaction, xid: int, news: PeerUpdate) -> None:
    peers = database_peers(pool)
    known: dict[QueueId, bool] = {}
    for queue, *_ in (*news.back, *news.gone):
        if queue not in known:
            known[queue] = not peers.saw(queue, xid) and enter(pool, tx, queue)
    notes = IndexDelta(
        gone=[note for note in news.gone if known[note[0]]],
        back=[note for note in news.back if known[note[0]]],
    )
    if notes:
        pool.index.apply_peer_delta(notes)


def _count_uncertain(pool: Pool, tx: Transaction) -> None:
    """Count the queues that seemed to have come to their end: some, the others at the next look."""
    peers = database_peers(pool)
    if peers.uncertain and pool.filling is None:
        some = sorted(peers.uncertain)[:CHUNK]
        recount(pool, tx, some)
        peers.uncertain.difference_update(some)


def _apply_policy(pool: Pool, tx: Transaction) -> None:
    current = instance.current_policy(tx.connection)
    if current is not None and current.version > pool.policy_version:
        apply_in_memory(pool, tx, policies.parse(current.text), current.version)


def recount(pool: Pool, tx: Transaction, queues: Sequence[QueueId]) -> int:
    """Count the jobs of these queues in the store; how many of them memory had wrong, which are set right."""
    peers = database_peers(pool)
    seen, counts = count_rows.waiting_counts_with_snapshot(tx.connection, queues)
    pending = _pending(pool, tx, seen)
    wrong = 0
    for queue in queues:
        entry = pool.index.entries.get(queue)
        have = {w: part.count for w, part in entry.levels.items()} if entry is not None else {}
        for weight, change in pending.get(queue, {}).items():
            have[weight] = have.get(weight, 0) + change
        meant = counts.get(queue, {})
        if {w: n for w, n in have.items() if n} == meant:
            continue
        wrong += queue not in peers.uncertain
        if enter(pool, tx, queue):
            pool.index.reset_queue(queue, meant)
            peers.seen[queue] = seen
    peers.differences += wrong
    return wrong


def _pending(pool: Pool, tx: Transaction, seen: changes.TransactionSnapshot) -> dict[QueueId, dict[int, int]]:
    """By queue and UserPriority: what others have done that a count has seen and memory has not followed yet."""
    peers = database_peers(pool)
    found: dict[QueueId, dict[int, int]] = {}
    for change in changes.read_all_since(tx.connection, peers.position, peers.server):
        if not seen.saw(change.xid):
            continue
        news = read_update(change.payload)
        moved = [(note[0], note[1], note[3]) for note in news.back]
        moved += [(note[0], note[1], -1) for note in news.gone]
        for queue, weight, count in moved:
            if not peers.saw(queue, change.xid):
                of_queue = found.setdefault(queue, {})
                of_queue[weight] = of_queue.get(weight, 0) + count
    return found


def all_queues(pool: Pool) -> list[QueueId]:
    """Whose jobs a recount counts."""
    return sorted({*pool.identities, *pool.index.entries})
