"""The route that explains the director's iterations."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query

from pilotage.server.context import Context
from pilotage.server.director_state import SEEDS
from pilotage.server.duties.director import compute_iteration
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.services.director.iteration_report import report
from pilotage.wire.director import DirectorReport
from pilotage.wire.limits import MAX_INT64, MAX_PAGE

router = APIRouter(prefix="/v1", tags=["places"], route_class=CheckedRoute)


@router.get("/director")
async def explain_director(
    dry_run: bool = Query(False, description="compute the next iteration now; nothing is submitted"),
    seed: int | None = Query(
        None, ge=0, le=SEEDS - 1, description="of a dry run; absent: of the next iteration"
    ),
    queue: int | None = Query(
        None, ge=0, le=MAX_INT64, description="only this task queue, with the verdict for each CE"
    ),
    limit: int = Query(100, ge=1, le=MAX_PAGE, description="queues at most"),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> DirectorReport:
    """The last iteration of the director: each term, cap and result for every queue. Administrators only.

    With `dry_run`, or if this server has not run an iteration, the next one is computed and nothing is submitted.
    """
    last = context.duties.director.last
    if last is not None and not dry_run:
        return report(last.work, seed=last.seed, number=last.number, queue=queue, limit=limit)
    seed = context.duties.director.next_seed if seed is None else seed
    work = await compute_iteration(context, seed)
    return report(work, seed=seed, number=None, queue=queue, limit=limit)
