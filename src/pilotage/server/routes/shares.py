"""Shares and use."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query

from pilotage.server.context import Context, caller_of, context_of
from pilotage.server.tokens import Caller
from pilotage.services.accounting import accounts
from pilotage.services.share_table import share_table
from pilotage.wire import shares

router = APIRouter(prefix="/v1", tags=["shares"])


@router.get("/shares")
async def share_list(
    context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> shares.ShareTable:
    """Entitled, used and corrected, of every group and owner; the same for all who ask."""
    pool = context.pool
    entitled = await context.writer.acall(lambda _: pool.index.priorities.table())
    return share_table(pool, entitled, context.book.as_of)


@router.get("/accounting")
def accounting(
    begin: float | None = Query(None, description="instant; of the first attempt that ended if absent"),
    end: float | None = Query(None, description="instant; of the last one if absent"),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> list[shares.AccountRow]:
    """Use by month, site, group and owner: everybody's for administrators, one's own for others."""
    owner = "" if caller.viewer().everything else caller.user
    return accounts(context.readers.connection(), begin, end, owner)
