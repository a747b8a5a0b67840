"""The stream by which an open page learns which of its parts have changed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from pilotage.core.errors import InvalidInput, NotFound, PilotageError
from pilotage.server.web.page import PageRouter
from pilotage.server.web.rendering import HEADERS
from pilotage.server.web.visit import Visit
from pilotage.wire.jobs import COUNT_JOBS, Selection

pages = PageRouter()

MOST_NAMES = 20
MINE = "mine"
"""The name of all jobs of the user, whose own name may have spaces and anything else."""
SIGN_OF_LIFE = ": still here\n\n"
STREAM = {**HEADERS, "X-Accel-Buffering": "no"}
"""The header fields of the stream. nginx would keep it back until a buffer is full."""


@pages.get("/changes")
async def changes(visit: Visit) -> Response:
    """Events with the names of parts to load again. `watch`: the names, such as job:12, separated by spaces."""
    names = visit.query.get("watch", "").split()
    if not names or len(names) > MOST_NAMES:
        raise InvalidInput(f"give 1 to {MOST_NAMES} names")
    for name in names:
        await _check(visit, name)
    return StreamingResponse(_events(visit, names), headers=STREAM, media_type="text/event-stream")


async def _check(visit: Visit, name: str) -> None:
    """Raise NotFound for the name of something that the user may not see."""
    kind, _, rest = name.partition(":")
    if name == MINE:
        return
    if kind in ("job", "why", "log", "submission") and rest.isascii() and rest.isdigit() and len(rest) < 20:
        number = int(rest)
        asked = Selection(submission=number) if kind == "submission" else Selection(ids=[number])
        if (await visit.ask(COUNT_JOBS, asked)).total:
            return
    raise NotFound(f"there is no {name}")


async def _events(visit: Visit, names: list[str]) -> AsyncIterator[str]:
    own = f"owner:{visit.caller.user}" if visit.caller is not None else ""
    with visit.site.open_pages.watching(own if name == MINE else name for name in names) as watcher:
        async for changed in visit.site.open_pages.changes(watcher):
            try:
                visit.sign_in(idle=True)
            except PilotageError:
                yield "event: signed-out\ndata: \n\n"
                return
            parts = sorted(MINE if name == own else name for name in changed)
            yield "".join(f"event: changed\ndata: {part}\n\n" for part in parts) or SIGN_OF_LIFE
