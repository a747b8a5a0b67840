"""Page: a change that would let a job start. Its effect is shown before it is applied."""

from __future__ import annotations

from starlette.responses import Response

from pilotage.server.web.job_changes import apply_change, proposed
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.jobs import ACT_ON_JOBS, SHOW_JOB, ActionRequest, Selection

pages = PageRouter()


@pages.get("/jobs/{job:int}/change")
async def show(visit: Visit, job: int) -> Response:
    """Show the effect of the change."""
    detail = await visit.ask(SHOW_JOB, job=job)
    opening = await proposed(visit, job, visit.query.get("attribute", ""), visit.query.get("value", ""))
    dry = await visit.ask(ACT_ON_JOBS, ActionRequest(Selection(ids=[job]), dry_run=True), verb="kill")
    return await visit.render("job_change.html", job=detail.job, opening=opening, skipped=dry.skipped)


@pages.post("/jobs/{job:int}/change")
async def apply(visit: Visit, job: int) -> Response:
    """Apply the change, and show the new job."""
    opening = await proposed(visit, job, visit.form.get("attribute", ""), visit.form.get("value", ""))
    return visit.redirect(f"jobs/{await apply_change(visit, job, opening)}")
