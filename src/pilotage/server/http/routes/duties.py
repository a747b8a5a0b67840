"""The route for the state of the server's duties."""

from __future__ import annotations

from itertools import islice

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.wire.duties import LIST_DUTIES, DutyList, FailingRowSummary

router = CallRouter("administration")

MOST_SHOWN = 1000


@router.call(LIST_DUTIES)
def list_duties(context: TheContext, caller: TheCaller) -> DutyList:
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
