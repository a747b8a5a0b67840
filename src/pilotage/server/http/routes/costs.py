"""The route for the costs of pilots."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends, Query

from pilotage.core.policy.lookup import ce_by_name
from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.services.pilots.costs import CostQuestion, CostsBy, cost_report
from pilotage.wire import limits
from pilotage.wire.ces import CeName
from pilotage.wire.costs import CostReport

router = APIRouter(prefix="/v1", tags=["places"], route_class=CheckedRoute)


@router.get("/costs")
def costs(
    by: Literal["ce", "owner", "group", "month"] = Query("ce", description="the meaning of a row"),
    ce: CeName = Query("", max_length=200, description="only this CE; it need not be in the policy any more"),
    since: float | None = Query(
        None, ge=1, le=limits.MAX_INSTANT, description="only the last seconds, in whole hours; default: all"
    ),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> CostReport:
    """Core-seconds of pilots: payload, start-up, idle and lost. Others than administrators see only their own."""
    now = context.clock()
    owner = None if caller.viewer().everything else caller.user
    question = CostQuestion(None if since is None else now - since, CostsBy(by), ce or None, owner)
    report = cost_report(context.readers.connection, dict(context.pool.pilots.heard), question, now)
    if ce and not report.rows:
        # A CE that has gone from the policy keeps its costs. A name without any is probably a mistake.
        ce_by_name(context.pool.policy, ce)
    return report
