"""The duty that removes rows of empty queues and closes submissions that were left open."""

from __future__ import annotations

import logging

from pilotage.server.context import Context
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.submission import chunked
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

QUEUE_PERIOD = 3600.0
QUEUE_KEPT = 86400.0


class QueueDuty:
    """Rows of queues that have been without jobs for a day go, by a cycle, never by the last job.

    Submissions to which nothing has come for as long are closed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def cycle(self) -> None:
        pool, writer, clock = self._context.pool, self._context.writer, self._context.clock
        await writer.acall(lambda tx: submissions.mark_empty_queues(tx.connection, clock()))
        await writer.acall(lambda tx: self._forget(tx, clock() - QUEUE_KEPT))
        while left := await writer.acall(lambda tx: chunked.close_idle_submissions(pool, tx, clock())):
            for one in left:
                log.warning("submission %d was left open: closed with %d jobs", one.id, one.count)

    def _forget(self, tx: Transaction, before: float) -> None:
        gone = submissions.delete_empty_queues(tx.connection, before)
        if gone:
            self._context.pool.forget_queues(tx, gone)
            self._context.pool.peers.publish(tx, PeerUpdate(queues=gone))
