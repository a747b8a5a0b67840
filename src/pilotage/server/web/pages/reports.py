"""Files to send to others: the report of a submission or a request, as `pilotage report --html` writes it."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, PilotageError
from pilotage.report.figures import WorkReport
from pilotage.report.page import page_of
from pilotage.report.questions import Reading
from pilotage.report.readings import read_request, read_submission
from pilotage.server.web.page import PageRouter
from pilotage.server.web.rendering import HEADERS
from pilotage.server.web.visit import Visit
from pilotage.wire.requests import SHOW_REQUEST
from pilotage.wire.submission_progress import SHOW_PROGRESS

pages = PageRouter()

MOST_JOBS = 20_000
"""Jobs whose attempts a page adds up, in a few seconds."""


@pages.get("/submissions/{submission:int}/report")
async def report_submission(visit: Visit, submission: int) -> Response:
    """The report of a submission as a file."""
    progress = await visit.ask(SHOW_PROGRESS, submission_id=submission)
    _check_size(progress.submission.count, str(submission))
    return await _file(visit, f"submission-{submission}", read_submission(submission, visit.context.clock()))


@pages.get("/requests/{request:int}/report")
async def report_request(visit: Visit, request: int) -> Response:
    """The report of a request as a file."""
    detail = await visit.ask(SHOW_REQUEST, request=request)
    _check_size(detail.request.jobs, f"request:{request}")
    return await _file(visit, f"request-{request}", read_request(request, visit.context.clock()))


def _check_size(jobs: int, subject: str) -> None:
    if jobs > MOST_JOBS:
        hint = f"`pilotage report {subject} --html FILE` reports on any number"
        raise InvalidInput(f"a page reports on at most {MOST_JOBS:,} jobs, and these are {jobs:,}", hint=hint)


async def _file(visit: Visit, name: str, reading: Reading[WorkReport]) -> Response:
    text = await asyncio.to_thread(page_of, await _answered(visit, reading))
    saved = {"Content-Disposition": f'attachment; filename="{name}.html"'}
    return Response(text, 200, {**HEADERS, **saved}, media_type="text/html")


async def _answered(visit: Visit, reading: Reading[WorkReport]) -> WorkReport:
    """The outcome of a reading whose questions this visit asks."""
    try:
        question = next(reading)
        while True:
            try:
                answer = await visit.ask(question.call, question.request, **question.parts)
            except PilotageError as error:
                question = reading.throw(error)
            else:
                question = reading.send(answer)
    except StopIteration as end:
        outcome: WorkReport = end.value
        return outcome
