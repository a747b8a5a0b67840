"""The route for the state of the server's duties."""

from __future__ import annotations

from itertools import islice

from fastapi import APIRouter, Depends

from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.wire.duties import DutyList, FailingRowSummary

router = APIRouter(prefix="/v1", tags=["administration"], route_class=CheckedRoute)

MOST_SHOWN = 1000


@router.get("/duties")
def list_duties(context: Context = Depends(context_of), caller: Caller = Depends(caller_of)) -> DutyList:
    """The duties of this server, and the rows that they cannot process. Only administrators see rows and errors."""
    counts = context.duties.failing.counts()
    rows = [
        FailingRowSummary(
            *(row.duty, row.step),
            row.row if caller.administrator else "",
            row.error if caller.administrator else "",
            row.since,
        )
        for row in islice(context.duties.failing, MOST_SHOWN)
    ]
    return DutyList(list(counts), rows, sum(counts.values()))
