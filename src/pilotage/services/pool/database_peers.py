"""The peers of one of several servers on a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pilotage.core.ids import QueueId
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.core.queues.indexed_queue import HeadsRequest
from pilotage.core.queues.own_part import OwnPart
from pilotage.services.pool.peers import Heartbeat, PeerUpdate
from pilotage.services.pool.records import IndexLoading
from pilotage.store.cluster import changes, servers
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.engine.connection import ServerEvicted, database_time
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction

NOTIFICATION_PERIOD = 0.05
"""Seconds between two notifications by one server: each takes a lock of the whole database server in its commit."""


@dataclass(slots=True)
class DatabasePeers:
    """Writes change rows for the other servers, and remembers how far their change rows have been applied."""

    server: str
    position: int = 0
    """The first transaction whose changes may not have been applied."""
    rules: int = -1
    """The number of changes of rules that have been applied."""
    counted: TransactionSnapshot | None = None
    """The snapshot in which the whole index was counted."""
    seen: dict[QueueId, TransactionSnapshot] = field(default_factory=dict)
    """Later snapshots in which single queues were counted."""
    uncertain: set[QueueId] = field(default_factory=set)
    """Queues with fewer jobs in the store than in memory. They will be counted again."""
    races_lost: int = 0
    """Jobs that this server was about to offer when another server had already taken them."""
    differences: int = 0
    """Queues with wrong counts that a recount corrected."""
    monotonic: Callable[[], float] | None = None
    """A monotonic clock for the notifications. None: no notifications are sent."""
    notified: float = float("-inf")
    shared: bool = True
    delta: IndexDelta | None = field(default_factory=IndexDelta)
    own_part: OwnPart | None = field(default_factory=OwnPart)
    _update: PeerUpdate = field(default_factory=PeerUpdate)
    """The update that the transaction `_update_of` publishes."""
    _update_of: Transaction | None = None

    # --- changes of this server

    def publish(self, tx: Transaction, update: PeerUpdate | None = None) -> None:
        if self._update_of is not tx:
            self._update_of, self._update = tx, PeerUpdate()
            tx.before_commit("peer update", lambda: self._write_update(tx))
            tx.on_rollback(self._clear_delta)
        if update is not None:
            self._update.add(update)

    def _write_update(self, tx: Transaction) -> None:
        update, delta = self._update, self.delta
        assert delta is not None
        update.gone, update.back = delta.gone, delta.back
        self._clear_delta()
        if update != PeerUpdate():
            if update.rules:
                changes.count_rules(tx.connection)
            text = msgspec.json.encode(update).decode()
            changes.write(tx.connection, self.server, text, hint=self.should_notify())

    def _clear_delta(self) -> None:
        """Replace the lists instead of emptying them: an update may refer to them."""
        assert self.delta is not None
        self.delta.gone, self.delta.back = [], []

    def should_notify(self) -> bool:
        """Whether this transaction notifies the others. Not every one does: they read again soon by themselves."""
        if self.monotonic is None or (now := self.monotonic()) - self.notified < NOTIFICATION_PERIOD:
            return False
        self.notified = now
        return True

    def report_policy(self, tx: Transaction, version: int) -> None:
        servers.save_policy_version(tx.connection, self.server, version)

    def heartbeat(self, tx: Transaction, now: float, policy_version: int) -> Heartbeat:
        instance.lock_row(tx.connection)
        now = database_time(tx.connection, now)
        before = {server.name: server.alive_at for server in servers.live(tx.connection)}
        if not servers.heartbeat(tx.connection, self.server, now, policy_version):
            raise ServerEvicted(
                "the other servers evicted this server because it sent no heartbeat", hint="start it again"
            )
        return Heartbeat(now, before.get(self.server), alone=len(before) == 1)

    # --- counts of shared queues

    def begin_loading(self, tx: Transaction) -> IndexLoading:
        return IndexLoading(last_job=0, in_snapshot=True)

    def loaded(self, snapshot: TransactionSnapshot) -> None:
        """Record that the whole index has been counted in a snapshot."""
        self.counted = snapshot
        self.seen.clear()
        self.uncertain.clear()

    def waiting_counts(self, tx: Transaction, queue: QueueId) -> Mapping[int, int]:
        seen, counts = count_rows.waiting_counts_with_snapshot(tx.connection, [queue])
        self.seen[queue] = seen
        return counts.get(queue, {})

    def check_heads(self, wanted: Sequence[HeadsRequest], heads: Sequence[Sequence[object]]) -> None:
        self.uncertain.update(
            request.queue for request, rows in zip(wanted, heads, strict=True) if len(rows) < request.limit
        )

    def doubt(self, queues: Iterable[QueueId]) -> None:
        self.uncertain.update(queues)

    def forget_queue(self, queue: QueueId) -> None:
        self.seen.pop(queue, None)
        self.uncertain.discard(queue)

    def saw(self, queue: QueueId, xid: int) -> bool:
        """Whether the count of a queue in memory includes a transaction."""
        seen = self.seen.get(queue, self.counted)
        return seen is not None and seen.saw(xid)

    def count_lost_race(self) -> bool:
        self.races_lost += 1
        return True

    def metrics(self) -> Mapping[str, int]:
        return {
            "pilotage_lost_draws_total": self.races_lost,
            "pilotage_recount_differences_total": self.differences,
        }
