"""Start-up work of a server: it loads the index and finishes the submissions of its predecessor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

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

RETRY_PAUSE = 1.0
"""Seconds before a step that a full queue or the database refused is tried again."""

Done = TypeVar("Done")

QUEUES_PER_TRANSACTION = 200
"""Queues added to the index in one transaction."""


async def patiently(context: Context, what: str, step: Callable[[], Awaitable[Done]]) -> Done | None:
    """Do a step that a start can't do without, again and again while the server has too much to do; None: it stops.

    Many pilots come back to a server that starts, and fill the queue of its writer.
    """
    while not context.stop.is_set():
        try:
            return await step()
        except Overloaded as error:
            log.warning("%s must wait: %s", what, error)
            await pause(context, RETRY_PAUSE)
    return None


async def load_index(context: Context) -> None:
    """Count the waiting jobs while the server answers requests. Jobs are offered when this is done."""
    begun = context.clock()
    if context.pool.peers.shared:
        await patiently(context, "the count of waiting jobs", partial(_load_with_reader, context))
    else:

        def load() -> Awaitable[bool]:
            return context.writer.acall(lambda tx: load_slice(context.pool, tx))

        while not await patiently(context, "the count of waiting jobs", load):
            if context.stop.is_set():
                return
    log.info("counted the waiting jobs in %.1f s", context.clock() - begun)


async def _load_with_reader(context: Context) -> None:
    """Count on a reader's connection. The writer only applies the counts."""
    snapshot, counts = await asyncio.to_thread(lambda: count_waiting(context.readers.connection()))
    await _add_counts(context, snapshot, counts)


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

    async def forget() -> None:
        for submission in await unaccepted(context):
            await forget_staged(context, submission)

    await patiently(context, "the removal of partly stored submissions", forget)


async def finish_submissions(context: Context) -> None:
    """Create the remaining jobs of accepted submissions. One that fails does not stop the others."""
    what = "the creation of the remaining jobs"
    for submission in await patiently(context, what, partial(unfinished, context)) or ():
        try:
            await patiently(context, what, partial(finish_submission, context, submission))
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
