"""Routes that list submissions, show their progress and change their limits."""

from __future__ import annotations

from fastapi import Response

from pilotage.core.errors import NotFound
from pilotage.core.ids import SubmissionId
from pilotage.core.plurals import plural
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.jobs.parallel import set_limit
from pilotage.services.submission.progress import progress_of
from pilotage.store.tables import parallel_limits, submission_listing
from pilotage.store.tables.submission_listing import SubmissionFigures
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.limits import Id
from pilotage.wire.submission_progress import (
    LIMIT_SUBMISSION,
    LIST_SUBMISSIONS,
    SHOW_PROGRESS,
    ParallelRequest,
    SubmissionProgress,
    SubmissionsQuery,
    SubmissionSummary,
)

router = CallRouter("submission")


@router.call(LIST_SUBMISSIONS)
def submissions(asked: SubmissionsQuery, context: TheContext, caller: TheCaller) -> Response:
    """Submissions that the caller may see, newest first, with the number of their jobs by state."""
    rows = submission_listing.page(
        context.readers.connection(),
        caller.viewer(),
        owner=asked.owner,
        before=asked.after,
        limit=asked.limit,
    )
    return page("submissions", ((row.id, SubmissionSummary(*row)) for row in rows), asked.limit)


@router.call(SHOW_PROGRESS)
def progress(submission_id: Id, context: TheContext, caller: TheCaller) -> SubmissionProgress:
    """How far a submission has come: its rate, the time left, running jobs, and failures by their reason."""
    figures = _visible_submission(context, caller, submission_id)
    return progress_of(context.readers.connection(), figures, context.clock())


@router.call(LIMIT_SUBMISSION)
async def limit(
    submission_id: Id, body: ParallelRequest, context: TheContext, caller: TheCaller
) -> SubmissionSummary:
    """Change the number of jobs of a submission that run at once; 0: all."""
    owner = _visible_submission(context, caller, submission_id).owner
    pool = context.pool
    await context.writer.acall(
        audited(
            audited_call(context, caller, LIMIT_SUBMISSION, f"submission {submission_id} of {owner}"),
            lambda tx: set_limit(pool, tx, SubmissionId(submission_id), body.running),
            state=lambda tx: _limit_text(tx, submission_id),
            owner=lambda _: owner,
        )
    )
    return SubmissionSummary(*_visible_submission(context, caller, submission_id))


def _limit_text(tx: Transaction, submission: int) -> str:
    """The limit of a submission, for the audit log."""
    limit = parallel_limits.find(tx.connection, SubmissionId(submission))
    return f"at most {plural(limit.running, 'job')} at once" if limit and limit.running else "no limit"


def _visible_submission(context: Context, caller: Caller, submission: int) -> SubmissionFigures:
    """A submission that the caller may see. Others' submissions do not exist."""
    figures = submission_listing.one(context.readers.connection(), caller.viewer(), submission)
    if figures is None:
        raise NotFound(f"there is no submission {submission}", hint="or it belongs to another user")
    return figures
