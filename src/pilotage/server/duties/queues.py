"""The duty that deletes rows of empty queues and closes idle submissions."""

from __future__ import annotations

from pilotage.server.duties.duty import Duty
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.submission import chunked
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import Transaction

QUEUE_KEPT = 86400.0
"""Seconds for which an empty queue is kept."""


class QueueDuty(Duty):
    """Deletes queues that have been empty for a day, and closes submissions without new jobs for a day.

    The row of a queue is never deleted together with its last job.
    """

    name = lease = "queues"
    every = 3600.0

    async def work(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        await writer.acall(lambda tx: submissions.mark_empty_queues(tx.connection, clock()))
        await writer.acall(lambda tx: self._delete_empty(tx, clock() - QUEUE_KEPT))
        await self._rows.step(
            "close idle submissions",
            lambda tx: chunked.idle_submissions(tx, clock()),
            lambda tx, part: chunked.close_idle_submissions(pool, tx, part, clock()),
        )

    def _delete_empty(self, tx: Transaction, before: float) -> None:
        deleted = submissions.delete_empty_queues(tx.connection, before)
        if deleted:
            self._context.pool.forget_queues(tx, deleted)
            self._context.pool.peers.publish(tx, PeerUpdate(queues=deleted))
