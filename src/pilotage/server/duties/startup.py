"""Start-up work of a server: it loads the index and finishes the submissions of its predecessor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from math import inf

from pilotage.core.errors import Overloaded
from pilotage.core.ids import QueueId, SubmissionId
from pilotage.server.context import Context
from pilotage.server.duties.loop import pause
from pilotage.server.duties.row_by_row import CONCERN_ALL
from pilotage.services.pool.index_loading import Counts, apply_counts, count_waiting, load_slice
from pilotage.services.pool.state import Pool
from pilotage.services.submission import accept as submission_service
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

RECOUNT_PAUSE = 1.0
"""Seconds before a count that the database refused is tried again."""

QUEUES_PER_TRANSACTION = 200
"""Queues added to the index in one transaction."""


async def load_index(context: Context) -> None:
    """Count the waiting jobs while the server answers requests. Jobs are offered when this is done."""
    begun = context.clock()
    if context.pool.peers.shared:
        await _load_with_reader(context)
    else:
        while not await context.writer.acall(lambda tx: load_slice(context.pool, tx)):
            if context.stop.is_set():
                return
    log.info("counted the waiting jobs in %.1f s", context.clock() - begun)


async def _load_with_reader(context: Context) -> None:
    """Count on a reader's connection. The writer only applies the counts."""
    while not context.stop.is_set():
        try:
            snapshot, counts = await asyncio.to_thread(lambda: count_waiting(context.readers.connection()))
            await _add_counts(context, snapshot, counts)
        except Overloaded as error:
            log.warning("the waiting jobs could not be counted: %s", error)
            await pause(context, RECOUNT_PAUSE)
        else:
            return


async def _add_counts(context: Context, snapshot: TransactionSnapshot, counts: Counts) -> None:
    """Add the queues in several transactions, which takes most of the time, then all counts in one."""
    pool, writer, queues = context.pool, context.writer, list(counts)
    for first in range(0, len(queues), QUEUES_PER_TRANSACTION):
        part = queues[first : first + QUEUES_PER_TRANSACTION]
        await writer.acall(partial(_add_queues, pool, part))
    await writer.acall(lambda tx: apply_counts(pool, tx, snapshot, counts))


def _add_queues(pool: Pool, queues: Sequence[QueueId], tx: Transaction) -> None:
    for queue in queues:
        pool.queues.try_add(tx, queue)


async def forget_unaccepted(context: Context) -> None:
    """Delete partly stored submissions of the last server. Their clients have received no answer."""
    for submission in await unaccepted(context):
        await forget_staged(context, submission)


async def finish_submissions(context: Context) -> None:
    """Create the remaining jobs of accepted submissions. One that fails does not stop the others."""
    for submission in await unfinished(context):
        try:
            await finish_submission(context, submission)
        except CONCERN_ALL:
            raise
        except Exception:
            log.exception("the remaining jobs of submission %d could not be created", submission)


async def unaccepted(context: Context, untouched_since: float = inf) -> Sequence[SubmissionId]:
    """Partly stored submissions that no request has changed since then."""
    return await context.writer.acall(lambda tx: submissions.staged(tx.connection, untouched_since))


async def unfinished(context: Context, untouched_since: float = inf) -> Sequence[SubmissionId]:
    """Accepted submissions without all of their jobs that no request has changed since then."""
    return await context.writer.acall(lambda tx: submissions.with_unmade_jobs(tx.connection, untouched_since))


async def finish_submission(context: Context, submission: SubmissionId) -> None:
    """Create the remaining jobs of an accepted submission."""
    await context.work.gate.make(context.pool, JobCreator(submission))
    log.info("created the remaining jobs of submission %d", submission)


async def forget_staged(context: Context, submission: SubmissionId, untouched_since: float = inf) -> None:
    """Delete a partly stored submission that no request has changed since then."""
    while not await context.work.gate.write(
        lambda tx: submission_service.delete_staged(tx, submission, untouched_since)
    ):
        pass
