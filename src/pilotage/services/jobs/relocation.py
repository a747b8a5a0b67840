"""Moves jobs between task queues, when the sites or the priority of their request have changed.

The sites are part of the identity of a queue. So a waiting job leaves its queue and waits in another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pilotage.core.ids import JobId
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.store.tables import jobs, submissions
from pilotage.store.writer.transaction import Transaction

MOVED_AT_ONCE = 500
"""Jobs moved per transaction at most, so that no write takes over 5 ms."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs may start, and with which UserPriority they wait."""

    sites: frozenset[str]
    """Not empty."""
    user_priority: int


def relocate(
    pool: Pool, tx: Transaction, ids: Iterable[JobId], place: Place, *, actor: str, reason: str, now: float
) -> int:
    """Let unfinished jobs wait at another place, now or when they wait again. Returns the number of changed jobs.

    Running jobs go on where they are.
    """
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, actor))
    moved = 0
    for job in jobs.by_ids(tx.connection, list(ids)).values():
        if job.state in FINAL:
            continue
        identity = pool.queues.identity(tx, job.queue)
        if (identity.sites, job.user_priority) == (place.sites, place.user_priority):
            continue
        wanted = replace(identity, sites=place.sites, banned_sites=frozenset())
        queue = (
            job.queue if wanted == identity else submissions.get_or_insert_queue(tx.connection, wanted, now)
        )
        moves.rows[job.id] = job
        if job.state is JobState.WAITING:
            moves.wait_elsewhere(job, queue, place.user_priority, reason)
        else:
            moves.return_elsewhere(job, queue, place.user_priority)
        moved += 1
    moves.write()
    return moved
