"""Routes of waiting jobs and shares over time."""

from __future__ import annotations

from fastapi import Response

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import encoded, page
from pilotage.services.intervals import reports
from pilotage.store.tables.intervals import past_waits
from pilotage.wire.intervals import (
    PAST_QUEUES,
    SHARE_HISTORY,
    WAITING_HISTORY,
    PastQueue,
    PastQueuesQuery,
    ShareHistoryQuery,
    WaitingHistoryQuery,
)

router = CallRouter("places")


@router.call(WAITING_HISTORY)
def waiting_history(asked: WaitingHistoryQuery, context: TheContext, caller: TheCaller) -> Response:
    """The waiting jobs that the caller may see over time: averages by reason and group in equal parts of a period."""
    report = reports.waiting_history(context.readers.connection(), asked, caller.viewer(), context.clock())
    return encoded(report)


@router.call(PAST_QUEUES)
def past_queues(asked: PastQueuesQuery, context: TheContext, caller: TheCaller) -> Response:
    """The task queues that the caller may see and that waited in a period, each with its last wait there, by id.

    Queues that have been deleted since, a day after their last job, are left out.
    """
    period = (asked.begin, asked.end)
    waits = past_waits(
        context.readers.connection(), period, asked.reason, caller.viewer(), asked.after, asked.limit
    )
    return page("queues", ((wait.queue, PastQueue(*wait)) for wait in waits), asked.limit)


@router.call(SHARE_HISTORY)
def share_history(asked: ShareHistoryQuery, context: TheContext, caller: TheCaller) -> Response:
    """Entitled, used and corrected shares over time, of groups or of the owners of one. All callers get the same."""
    return encoded(reports.share_history(context.readers.connection(), asked, context.clock()))
