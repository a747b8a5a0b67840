"""Methods of the client about submissions as wholes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests
from pilotage.wire.limits import MAX_PAGE

if TYPE_CHECKING:
    from pilotage.wire.submission_progress import SubmissionProgress, SubmissionSummary


class SubmissionMethods(TypedRequests):
    """Methods of the client about submissions as wholes."""

    def submissions(self, *, owner: str | None = None, page: int = MAX_PAGE) -> Iterator[SubmissionSummary]:
        """Iterate over submissions, newest first, with the number of their jobs by state. `page`: of one call."""
        asked = wire.submission_progress.SubmissionsQuery(owner=owner)
        return self._pages(
            wire.submission_progress.LIST_SUBMISSIONS, asked, lambda answer: answer.submissions, page=page
        )

    def submission_progress(self, submission: int) -> SubmissionProgress:
        """Return how far a submission has come."""
        return self.call(wire.submission_progress.SHOW_PROGRESS, submission_id=submission)

    def limit_submission(self, submission: int, running: int) -> SubmissionSummary:
        """Let at most `running` jobs of a submission run at once; 0: no limit."""
        request = wire.submission_progress.ParallelRequest(running)
        return self.call(wire.submission_progress.LIMIT_SUBMISSION, request, submission_id=submission)
