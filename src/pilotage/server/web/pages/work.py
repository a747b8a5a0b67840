"""Pages: my work, and one submission."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from pilotage.core.jobs.states import FINAL, RUNS
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.submission_progress import (
    LIST_SUBMISSIONS,
    SHOW_PROGRESS,
    SubmissionProgress,
    SubmissionsQuery,
    SubmissionSummary,
)

pages = PageRouter(menu="My work", order=1)

ROWS = 20
LOOKED_AT = 6
"""Submissions of the list whose rate and failures are read."""
_PARTS = ("done", "failed", "other", "running", "waiting")


@pages.get("/")
async def work(visit: Visit) -> Response:
    """My submissions, the newest first, and the failures of the latest."""
    caller = visit.caller
    assert caller is not None
    after = visit.number("before")
    page = await visit.ask(LIST_SUBMISSIONS, SubmissionsQuery(owner=caller.user, limit=ROWS, after=after))
    looked_at = [row for row in page.submissions if _is_open(row) or row.states.get("Failed")][:LOOKED_AT]
    progress = {row.id: await visit.ask(SHOW_PROGRESS, submission_id=row.id) for row in looked_at}
    return await visit.render(
        "work.html",
        rows=[(row, bar_of(row), progress.get(row.id)) for row in page.submissions],
        next=page.next,
        first_page=not after,
    )


@pages.get("/submissions/{submission:int}")
async def submission(visit: Visit, submission: int) -> Response:
    """How far one submission has come, and its failures by their cause."""
    progress: SubmissionProgress = await visit.ask(SHOW_PROGRESS, submission_id=submission)
    row = progress.submission
    return await visit.render(
        "submission.html", row=row, bar=bar_of(row), progress=progress, states=sorted(row.states.items())
    )


def _is_open(row: SubmissionSummary) -> bool:
    return bar_of(row).ended < row.count


class Bar(msgspec.Struct, frozen=True):
    """The jobs of a submission in the parts of a bar. Together they are all its jobs."""

    done: int
    failed: int
    other: int
    """Killed, skipped, superseded or deleted."""
    running: int
    waiting: int
    """Jobs that are not created yet are among them."""

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.other

    @property
    def parts(self) -> list[tuple[str, int, float, float]]:
        """(part, jobs, begin, width) in hundredths."""
        counts = [(part, getattr(self, part)) for part in _PARTS]
        total, begin, parts = sum(count for _, count in counts) or 1, 0.0, []
        for part, count in counts:
            width = count / total * 100
            if count:
                parts.append((part, count, round(begin, 3), round(width, 3)))
            begin += width
        return parts


def bar_of(row: SubmissionSummary) -> Bar:
    done, failed = row.states.get("Done", 0), row.states.get("Failed", 0)
    ended = sum(number for state, number in row.states.items() if state in FINAL)
    running = sum(number for state, number in row.states.items() if state in RUNS)
    return Bar(done, failed, ended - done - failed, running, max(0, row.count - ended - running))
