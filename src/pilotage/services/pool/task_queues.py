"""The task queues in memory: their identities, and the index of their waiting jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId, QueueId
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.services.pool.peers import Peers
from pilotage.services.pool.records import IndexLoading, RecordedReason
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.writer.transaction import Transaction


@dataclass(slots=True)
class TaskQueues:
    """The index, and the state of loading it.

    A transaction that fails restores the queues that it touched from the store.
    """

    policy: Callable[[], Policy]
    """Returns the policy in force."""
    peers: Peers
    identities: dict[QueueId, QueueIdentity] = field(default_factory=dict)
    """The identity of every queue with a row in the store.

    Empty queues are deleted after a day, which bounds the mapping.
    """
    index: QueueIndex = field(init=False)
    loading: IndexLoading | None = None
    """How far the waiting jobs have been counted; None: all are counted."""
    flush_transitions: Callable[[], None] | None = None
    """Writes the transitions of this transaction that decide which jobs wait. None: there are none."""
    priority_updates: Iterator[None] | None = None
    """Computed priorities that the index is applying, a few queues in each transaction."""

    recorded_reasons: dict[QueueId, RecordedReason] | None = None
    """The last recorded wait reason of each queue; None until the history has been read."""

    def identity(self, tx: Transaction, queue: QueueId) -> QueueIdentity:
        """The identity of a queue. Raises `NotFound`."""
        identity = self.identities.get(queue)
        if identity is None:
            identity = submission_rows.queue_identity(tx.connection, queue)
            if identity is None:
                raise NotFound(f"there is no task queue {queue}")
            self.identities[queue] = identity
        return identity

    def add(self, tx: Transaction, queue: QueueId) -> None:
        """Add a queue to the index unless it is there. Raises `NotFound`."""
        if queue not in self.index.entries:
            self.index.add_queue(self.new_entry(queue, self.identity(tx, queue)))

    def try_add(self, tx: Transaction, queue: QueueId) -> bool:
        """Add a queue; False: it has been deleted from the store."""
        try:
            self.add(tx, queue)
        except NotFound:
            return False
        return True

    def new_entry(self, queue: QueueId, identity: QueueIdentity) -> IndexedQueue:
        """A queue without jobs, as the policy in force admits it."""
        policy, owner, group = self.policy(), identity.owner, identity.group
        return IndexedQueue(queue, identity, policy.entity(owner, group), policy.admits(owner, group))

    def forget(self, queue: QueueId) -> None:
        """Drop a queue that has been deleted."""
        self.identities.pop(queue, None)
        self.index.remove_queue(queue)
        self.peers.forget_queue(queue)

    def is_counted(self, job: int) -> bool:
        """Whether the index counts this job while it waits."""
        loading = self.loading
        return loading is None or job <= loading.counted_to or job > loading.last_job

    def add_jobs(self, tx: Transaction, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """Add new waiting jobs, with ids from `first` on. The store has them already."""
        self.touch(tx, queue)
        loading = self.loading
        if loading is not None and first <= loading.last_job:
            # Ids allocated before the start: loading will count the rest.
            count = min(count, max(0, loading.counted_to + 1 - first))
        if count:
            self.index.add_jobs(queue, user_priority, first, count)

    def touch(self, tx: Transaction, queue: QueueId) -> None:
        """Read a queue again from the store if `tx` fails. Call it before the queue changes in the index."""
        self.add(tx, queue)
        tx.touch("queues", queue, tx, self._restore)
        self.peers.publish(tx)

    def touched(self, tx: Transaction) -> dict[QueueId, Transaction]:
        """The mutable mapping of touched queues, for a caller that touches many. Its values are `tx`.

        The caller adds each queue to the index first.
        """
        self.peers.publish(tx)
        return tx.touched("queues", self._restore)

    def _restore(self, touched: dict[QueueId, Transaction]) -> None:
        for queue, tx in touched.items():
            if submission_rows.queue_identity(tx.connection, queue) is None:
                # The failed transaction had inserted it: its id may be allocated again.
                self.forget(queue)
            else:
                self.reload(tx, queue)

    def reload(self, tx: Transaction, queue: QueueId) -> None:
        """Count the waiting jobs of a queue again. While the index is loading, this is done at its end."""
        if self.loading is not None:
            self.loading.to_recount.add(queue)
            return
        if queue not in self.index.entries:
            return
        self.index.reset_queue(queue, self.peers.waiting_counts(tx, queue))
