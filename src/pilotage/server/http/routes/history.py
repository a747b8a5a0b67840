"""The route for records of the server's work."""

from __future__ import annotations

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheContext
from pilotage.store.tables import ended_jobs
from pilotage.wire.history import (
    LIST_ENDED_JOBS,
    EndedJobFacts,
    EndedJobsPage,
    EndedJobsPosition,
    EndedJobsQuery,
)

router = CallRouter("administration")


@router.call(LIST_ENDED_JOBS)
def jobs(asked: EndedJobsQuery, context: TheContext) -> EndedJobsPage:
    """The jobs that have ended, in the order of their end, with their demands and run times."""
    connection = context.readers.connection()
    rows = ended_jobs.page(connection, asked.since, asked.after, asked.limit)
    return EndedJobsPage(
        [
            _ended_job(job, *rows.submissions[job.submission])
            for job in rows.jobs
            if job.submission in rows.submissions
        ],
        None if rows.last is None else EndedJobsPosition(rows.last.ended, rows.last.id),
        ended_jobs.whole_since(connection, context.clock() - context.pool.policy.retention.jobs),
    )


def _ended_job(
    job: ended_jobs.EndedJobRow, owner: str, group: str, demand: ended_jobs.Demand
) -> EndedJobFacts:
    return EndedJobFacts(
        job.id,
        job.state,
        owner,
        group,
        job.submitted,
        job.ended,
        job.processors or demand.processors,
        demand.memory,
        demand.wall_time,
        demand.cpu_time,
        job.run,
    )
