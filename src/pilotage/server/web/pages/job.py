"""Page: a job, and first why it waits."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.states import CONFIRMED, FINAL, GIVEN_BACK, TAKEN_AHEAD
from pilotage.server.web import formats
from pilotage.server.web.job_changes import changed_attribute
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.jobs import (
    LIST_EVENTS,
    READ_LOG,
    READ_OUTPUT,
    SHOW_JOB,
    Attempt,
    JobDetail,
    JobSummary,
    LogQuery,
)
from pilotage.wire.why import WHY_JOB

pages = PageRouter()

STREAMS = ("stdout", "stderr")
TAIL = 16_000
"""Bytes of an output that are shown."""
PIECE = 1_000_000
MOST_PIECES = 20
EVENTS_SHOWN = 50
FACTS_SHOWN = 4000
"""Characters of one value of the description."""


@pages.get("/jobs/{job:int}")
async def show(visit: Visit, job: int) -> Response:
    """Its state, why it waits, attempts, output, files."""
    detail = await visit.ask(SHOW_JOB, job=job)
    why = await visit.ask(WHY_JOB, job=job)
    events = await visit.ask(LIST_EVENTS, job=job)
    now = visit.context.clock()
    return await visit.render(
        "job.html",
        job=detail.job,
        detail=detail,
        why=why,
        changes=[(opening, changed_attribute(opening)) for opening in why.openings],
        verbs=possible_verbs(detail.job),
        attempts=_timeline(detail, now),
        events=events[-EVENTS_SHOWN:],
        description=_shown_description(detail),
        streams=STREAMS,
        not_begun=(TAKEN_AHEAD, GIVEN_BACK),
        running=detail.job.state in CONFIRMED,
        **await _log(visit, detail.job, _stream(visit)),
    )


@pages.get("/jobs/{job:int}/log")
async def log(visit: Visit, job: int) -> Response:
    """The end of its standard output or error."""
    detail = await visit.ask(SHOW_JOB, job=job)
    stream = _stream(visit)
    return await visit.render(
        "log.html",
        job=detail.job,
        running=detail.job.state in CONFIRMED,
        streams=STREAMS,
        **await _log(visit, detail.job, stream),
    )


@pages.get("/jobs/{job:int}/file")
async def file(visit: Visit, job: int) -> Response:
    """One output file, to be saved: nothing in it is shown as a page."""
    response: Response = await visit.respond(READ_OUTPUT, job=job, name=visit.query.get("name", ""))
    response.headers["Content-Disposition"] = "attachment"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def possible_verbs(job: JobSummary) -> list[str]:
    """The verbs that a job in this state takes."""
    if job.state in FINAL:
        return ["reschedule"] if job.state in ("Failed", "Killed") else []
    if job.state == "Held":
        return ["release", "kill"]
    return ["kill"] if job.state in CONFIRMED or job.state == "Matched" else ["hold", "kill"]


def _stream(visit: Visit) -> str:
    stream = visit.query.get("stream", "stdout")
    if stream not in STREAMS:
        raise InvalidInput("there is no such stream", hint="stdout or stderr")
    return stream


async def _log(visit: Visit, job: JobSummary, stream: str) -> dict[str, Any]:
    """The end of an output, as values of a template."""
    offset, last = 0, b""
    for _ in range(MOST_PIECES):
        piece = await visit.ask(READ_LOG, LogQuery(offset), job=job.id, stream=stream)
        last, offset = (last + piece)[-TAIL:], offset + len(piece)
        if len(piece) < PIECE:
            break
    return {"stream": stream, "log": formats.text(last), "log_size": offset, "log_cut": offset > len(last)}


def _timeline(detail: JobDetail, now: float) -> list[tuple[Attempt, float, float]]:
    """The attempts with begin and width, in hundredths of the time from the submission to now or the end."""
    begin = detail.job.submitted
    span = max((detail.job.ended or now) - begin, 1e-3)
    bars = []
    for attempt in detail.attempts:
        start = min(100.0, max(0.0, (attempt.started - begin) / span * 100))
        end = min(100.0, ((attempt.ended or now) - begin) / span * 100)
        bars.append((attempt, round(start, 2), round(max(0.7, end - start), 2)))
    return bars


def _shown_description(detail: JobDetail) -> list[tuple[str, str]]:
    """The fields of the description, in lines."""
    rows = []
    for name, value in detail.description.items():
        lines = value if isinstance(value, list) else [value]
        text = "\n".join(str(line) for line in lines)
        rows.append((name.replace("_", " "), text[:FACTS_SHOWN]))
    return rows
