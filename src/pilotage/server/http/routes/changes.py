"""The route of the change feed: a long poll."""

from __future__ import annotations

from starlette.responses import Response

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.change_listener import listen
from pilotage.server.http.patient_answers import patient_answer
from pilotage.wire.changes import READ_CHANGES, ChangesQuery

router = CallRouter("changes")


@router.call(READ_CHANGES)
async def changes(asked: ChangesQuery, context: TheContext, caller: TheCaller) -> Response:
    """Changes after a cursor. Without one, answers at once with the cursor of now.

    With `wait`, in seconds, the answer comes with the first change or when they are over.
    White space may come before it.
    """
    return await patient_answer(listen(asked, context, caller))
