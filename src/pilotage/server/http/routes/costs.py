"""The route for the costs of pilots."""

from __future__ import annotations

from pilotage.core.policy.lookup import ce_by_name
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.services.pilots.costs import CostQuestion, CostsBy, cost_report
from pilotage.wire.costs import COSTS, CostQuery, CostReport

router = CallRouter("places")


@router.call(COSTS)
def costs(asked: CostQuery, context: TheContext, caller: TheCaller) -> CostReport:
    """Core-seconds of pilots: payload, start-up, idle and lost. Others than administrators see only their own."""
    now = context.clock()
    owner = None if caller.viewer().everything else caller.user
    question = CostQuestion(
        None if asked.since is None else now - asked.since, CostsBy(asked.by), asked.ce or None, owner
    )
    report = cost_report(context.readers.connection, dict(context.pool.pilots.heard), question, now)
    if asked.ce and not report.rows:
        # A CE that has gone from the policy keeps its costs. A name without any is probably a mistake.
        ce_by_name(context.pool.policy, asked.ce)
    return report
