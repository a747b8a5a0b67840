"""Page: health, in one line, for anybody."""

from __future__ import annotations

from starlette.responses import Response

from pilotage.server.http.routes.administration import readiness
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit

pages = PageRouter()


@pages.get("/health", open=True)
async def health(visit: Visit) -> Response:
    """Whether the server takes work. Without sign-in it tells nothing else."""
    state = readiness(visit.context)["status"]
    return await visit.render("health.html", 200 if state == "ready" else 503, state=state)
