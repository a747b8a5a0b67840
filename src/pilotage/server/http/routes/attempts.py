"""The route of the attempts of many jobs."""

from __future__ import annotations

from fastapi import Response

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import encoded
from pilotage.server.http.routes.jobs import selection_of
from pilotage.store.tables import listing, usage
from pilotage.wire.attempts import LIST_ATTEMPTS, AttemptsPage, AttemptsQuery, JobAttempt

router = CallRouter("jobs")


@router.call(LIST_ATTEMPTS)
def list_attempts(asked: AttemptsQuery, context: TheContext, caller: TheCaller) -> Response:
    """The attempts of the selected jobs that the caller may see, with the core time that usage counts."""
    connection = context.readers.connection()
    jobs = listing.job_ids(connection, selection_of(asked), caller.viewer(), asked.after, asked.limit)
    attempts = usage.attempts_of(connection, jobs, JobAttempt)
    return encoded(AttemptsPage(attempts, jobs[-1] if len(jobs) == asked.limit else None))
