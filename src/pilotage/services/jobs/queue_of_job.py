"""The task queue of a job that returns after its end."""

from __future__ import annotations

from pilotage.core.ids import QueueId
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.submission.accept import identity_of
from pilotage.store.tables import jobs, submissions
from pilotage.store.tables.jobs import JobRow


def find_queue(moves: JobTransitions, job: JobRow) -> QueueId:
    """The queue of a job that returns. Its row may be gone, since it is deleted a day after its last unfinished job."""
    pool, tx = moves.pool, moves.tx
    if submissions.keep_queue(tx.connection, job.queue):
        return job.queue
    facts = pool.jobs.submissions.get(tx, job.submission)
    identity = identity_of(facts.description, facts.row.owner, facts.row.group, pool.policy)
    queue = submissions.get_or_insert_queue(tx.connection, identity, moves.now)
    jobs.change_queue(tx.connection, job.id, queue)
    return queue
