"""Pages: requests, and one request with its funnel, sites, errors and verbs."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from pilotage.core.errors import Conflict, NotFound
from pilotage.core.requests.funnel import JOB_STAGES, element_stages, job_stages
from pilotage.core.requests.states import UNFINISHED, RequestState
from pilotage.server.web.change_form import ChangeForm, ask_first
from pilotage.server.web.charts import Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.request_verbs import VERBS, RequestVerb, asked_of, possible_verbs, sent_programs
from pilotage.server.web.visit import Visit
from pilotage.wire.limits import MAX_INT64
from pilotage.wire.queries import PageQuery
from pilotage.wire.request_why import WHY_REQUEST
from pilotage.wire.requests import (
    LIST_REQUESTS,
    RESUBMIT_REQUEST,
    SHOW_HISTORY,
    SHOW_REQUEST,
    RequestResubmission,
    RequestSite,
    RequestsQuery,
    RequestStep,
    RequestSummary,
)
from pilotage.wire.uploads import UPLOAD_MANY, bundle_header

pages = PageRouter(menu="Requests", order=6)

ROWS = 50
EVENTS_SHOWN = 50
_PARTS = (ChartPart("done", "good"), ChartPart("failed", "bad"), ChartPart("left", "dim"))
_STAGE_TONES = ("dim", "olive", "stopped", "busy", "violet", "good", "bad", "pink")
_SITE_PARTS = (
    ChartPart("pending", "stopped"),
    ChartPart("running", "busy"),
    ChartPart("done", "good"),
    ChartPart("failed", "bad"),
)


@pages.get("/requests")
async def show(visit: Visit) -> Response:
    """Requests with their jobs, the newest first: unfinished ones, or all."""
    everything, before = visit.query.get("all", "") == "yes", visit.number("before")
    states = None if everything else [str(state) for state in (*UNFINISHED, RequestState.FAILED)]
    page = await visit.ask(LIST_REQUESTS, RequestsQuery(states, before=before or MAX_INT64, limit=ROWS))
    return await visit.render_charts(
        "requests.html",
        requests_chart(page.requests),
        requests=page.requests,
        next=page.next,
        everything=everything,
    )


@pages.get("/requests/{request:int}")
async def show_request(visit: Visit, request: int) -> Response:
    """One request: why it is not further, the funnel of each step, its sites, errors and history."""
    detail = await visit.ask(SHOW_REQUEST, request=request)
    history = await visit.ask(SHOW_HISTORY, PageQuery(limit=1000), request=request)
    assert visit.caller is not None
    return await visit.render_charts(
        "request.html",
        funnel_chart(detail.steps),
        sites_chart(detail.places),
        detail=detail,
        request=detail.request,
        why=await visit.ask(WHY_REQUEST, request=request),
        elements=[(step, element_stages(step.elements)) for step in detail.steps],
        verbs=possible_verbs(detail.request, visit.caller),
        events=history.events[-EVENTS_SHOWN:],
    )


@pages.get("/requests/{request:int}/{verb}")
async def ask_to_change(visit: Visit, request: int, verb: str) -> Response:
    """The effect of a verb."""
    summary = (await visit.ask(SHOW_REQUEST, request=request)).request
    words = _possible(visit, summary, verb)
    value = {"assign": summary.team, "priority": str(summary.priority)}.get(verb, "")
    form = ChangeForm(
        f"{words.words}: request {request}?",
        [words.effect, f"{summary.name}, {summary.jobs:,} jobs, {summary.done_jobs:,} of them done."],
        words.words,
        f"requests/{request}/{verb}",
        back=f"requests/{request}",
        danger=words.danger,
        inputs=[("value", words.input, value)] if words.input else [],
        file=words.file,
        takes_reason=not words.file,
    )
    return await ask_first(visit, form)


@pages.post("/requests/{request:int}/{verb}")
async def change(visit: Visit, request: int, verb: str) -> Response:
    """Carry a verb out, and show the request: of `resubmit` the new one."""
    words = VERBS.get(verb)
    if words is None:
        raise NotFound(f"there is no verb {verb[:20]}")
    asked = (
        asked_of(verb, visit.form)
        if words.call is not RESUBMIT_REQUEST
        else await _resubmission(visit, request)
    )
    answer = await visit.ask(words.call, asked, request=request)
    return visit.redirect(f"requests/{answer.id}")


async def _resubmission(visit: Visit, request: int) -> RequestResubmission:
    """A resubmission with the files of the form, which are stored first, if the user may see the request."""
    await visit.ask(SHOW_REQUEST, request=request)
    programs = sent_programs(visit.sent)
    if programs:
        bundle = b"".join(bundle_header(file.digest, file.size) + data for file, data in programs)
        await visit.respond(UPLOAD_MANY, bundle)
    return RequestResubmission(inputs=[file for file, _ in programs])


def requests_chart(requests: Sequence[RequestSummary]) -> Chart:
    """The jobs of each request: done, failed for good, and left."""
    bars = [
        ChartBar(
            f"{row.id} {row.name}",
            (row.done_jobs, row.failed_jobs, max(0, row.jobs - row.done_jobs - row.failed_jobs)),
            f"requests/{row.id}",
            f"{row.state}{', paused' if row.paused else ''}",
        )
        for row in requests
    ]
    return Chart("requests", "Jobs of these requests", "Request", "job", _PARTS, bars)


def funnel_chart(steps: Sequence[RequestStep]) -> Chart:
    """The jobs of each step by stage, from the plan to the result."""
    staged = [job_stages(step.estimated_jobs, step.jobs, step.pool) for step in steps]
    parts = [ChartPart(stage, tone) for stage, tone in zip(JOB_STAGES, _STAGE_TONES, strict=True)]
    bars = [ChartBar(step.name, list(stages.values())) for step, stages in zip(steps, staged, strict=True)]
    return Chart("funnel", "Jobs by step and stage", "Step", "job", parts, bars)


def sites_chart(places: Sequence[RequestSite]) -> Chart:
    """The jobs of a request at each site."""
    bars = [
        ChartBar(row.site or "(none yet)", (row.pending, row.running, row.done, row.failed)) for row in places
    ]
    return Chart("sites", "Jobs by site", "Site", "job", _SITE_PARTS, bars)


def _possible(visit: Visit, request: RequestSummary, verb: str) -> RequestVerb:
    """The verb. Raises NotFound if there is none, and Conflict if the request does not take it now."""
    if verb not in VERBS:
        raise NotFound(f"there is no verb {verb[:20]}")
    assert visit.caller is not None
    possible = possible_verbs(request, visit.caller).get(verb)
    if possible is None:
        raise Conflict(f"request {request.id} does not take this now: it is {request.state}")
    return possible
