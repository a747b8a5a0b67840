"""The route that explains the director's iterations."""

from __future__ import annotations

from pilotage.server.duties.director import compute_iteration
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.services.director.iteration_report import report
from pilotage.wire.director import EXPLAIN_DIRECTOR, DirectorQuery, DirectorReport

router = CallRouter("places")


@router.call(EXPLAIN_DIRECTOR)
async def explain_director(asked: DirectorQuery, context: TheContext, caller: TheCaller) -> DirectorReport:
    """The last iteration of the director: each term, cap and result for every queue. Administrators only.

    With `dry_run`, or if this server has not run an iteration, the next one is computed and nothing is submitted.
    """
    last = context.duties.director.last
    if last is not None and not asked.dry_run:
        return report(last.work, seed=last.seed, number=last.number, queue=asked.queue, limit=asked.limit)
    seed = context.duties.director.next_seed if asked.seed is None else asked.seed
    work = await compute_iteration(context, seed)
    return report(work, seed=seed, number=None, queue=asked.queue, limit=asked.limit)
