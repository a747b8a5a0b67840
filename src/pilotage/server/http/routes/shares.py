"""Routes for shares, fairness and accounting."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends, Query, Response

from pilotage.core.errors import InvalidInput
from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.http.pages import streamed_list
from pilotage.server.tokens import Caller
from pilotage.services.shares.accounting import accounts
from pilotage.services.shares.fairness import fairness_report, period
from pilotage.services.shares.table import entitlements, share_table
from pilotage.wire import limits, shares

router = APIRouter(prefix="/v1", tags=["shares"], route_class=CheckedRoute)


@router.get("/shares")
async def share_list(
    context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> shares.ShareTable:
    """The entitled, used and corrected share of every group and owner. All callers get the same table."""
    table = await context.writer.acall(lambda _: entitlements(context.pool))
    return await asyncio.to_thread(share_table, table, context.duties.book.as_of)


@router.get("/fairness")
async def fairness(
    since: float = Query(
        604800.0, ge=60, le=limits.MAX_INSTANT, description="length of the period in seconds, up to now"
    ),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> shares.FairnessReport:
    """The entitled share, the expected share and the use of every group and owner over a period."""
    pool, book = context.pool, context.duties.book
    if since > pool.policy.accounting.history:
        hint = f"accounting.history of the policy is {pool.policy.accounting.history:g} s"
        raise InvalidInput("the history of use is shorter than this period", hint=hint, field="since")
    entitled = await context.writer.acall(lambda _: pool.queues.index.priorities.table())
    end = book.as_of or context.clock()
    report = await asyncio.to_thread(
        lambda: period(context.readers.connection(), book, pool.policy, end - since, end)
    )
    return await asyncio.to_thread(lambda: fairness_report(pool.policy, entitled, report))


@router.get("/accounting", response_model=list[shares.AccountRow])
def accounting(
    begin: limits.Instant | None = Query(None, description="instant; default: the end of the first attempt"),
    end: limits.Instant | None = Query(None, description="instant; default: the end of the last attempt"),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Response:
    """Use by month, site, group and owner. Administrators see all owners, others only themselves."""
    owner = None if caller.viewer().everything else caller.user
    return streamed_list(accounts(context.readers.connection, begin, end, owner))
