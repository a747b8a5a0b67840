"""Work of a server that starts: it loads the index and finishes submissions of its predecessor."""

from __future__ import annotations

import asyncio
import logging
from math import inf

from pilotage.core.errors import Overloaded
from pilotage.core.ids import SubmissionId
from pilotage.server.context import Context
from pilotage.server.duties.loop import pause
from pilotage.services.pool.index_loading import Counts, apply_counts, count_waiting, load_slice
from pilotage.services.submission import accept as submission_service
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.cluster.changes import TransactionSnapshot
from pilotage.store.tables import submissions

log = logging.getLogger(__name__)

RECOUNT_PAUSE = 1.0
"""Seconds before a count that the database refused is tried again."""

QUEUES_PER_TRANSACTION = 200
"""Queues added to the index in one transaction."""


async def load_index(context: Context) -> None:
    """Count the waiting jobs while pilots and people are served; they are given out when that is done."""
    begun = context.clock()
    if context.pool.peers.shared:
        await _load_with_reader(context)
    else:
        while not await context.writer.acall(lambda tx: load_slice(context.pool, tx)):
            if context.stop.is_set():
                return
    log.info("counted the waiting jobs in %.1f s", context.clock() - begun)


async def _load_with_reader(context: Context) -> None:
    """By a reader, for as long as the database takes: the writer has only to take up what was found."""
    while not context.stop.is_set():
        try:
            found = await asyncio.to_thread(lambda: count_waiting(context.readers.connection()))
            await _add_counts(context, *found)
        except Overloaded as error:
            log.warning("the waiting jobs could not be counted: %s", error)
            await pause(context, RECOUNT_PAUSE)
        else:
            return


async def _add_counts(context: Context, seen: TransactionSnapshot, counts: Counts) -> None:
    """The queues some at a time, which takes most of the time, then their jobs at once."""
    pool, writer, queues = context.pool, context.writer, list(counts)
    for first in range(0, len(queues), QUEUES_PER_TRANSACTION):
        part = queues[first : first + QUEUES_PER_TRANSACTION]
        await writer.acall(lambda tx, part=part: [pool.queues.try_add(tx, queue) for queue in part])  # type: ignore[misc]
    await writer.acall(lambda tx: apply_counts(pool, tx, seen, counts))


async def forget_unaccepted(context: Context, untouched_since: float = inf) -> None:
    """What the last server had stored in part of a submission goes: nobody was told of it.

    `untouched_since`: of submissions that nobody has touched since then.
    """
    for submission in await context.writer.acall(
        lambda tx: submissions.staged(tx.connection, untouched_since)
    ):
        await forget_staged(context, submission)


async def finish_submissions(context: Context, untouched_since: float = inf) -> None:
    """Make the jobs that were accepted before the last server ended. `untouched_since` as of `forget_unaccepted`."""
    for submission in await context.writer.acall(
        lambda tx: submissions.with_unmade_jobs(tx.connection, untouched_since)
    ):
        await context.bulk.make(context.pool, JobCreator(submission))
        log.info("made the remaining jobs of submission %d", submission)


async def forget_staged(context: Context, submission: SubmissionId) -> None:
    """Take back a submission that was stored in part; its client was told nothing."""
    while not await context.bulk.write(lambda tx: submission_service.delete_staged(tx, submission)):
        pass
