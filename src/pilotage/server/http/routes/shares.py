"""Routes for shares, fairness and accounting."""

from __future__ import annotations

import asyncio

from fastapi import Response

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import Policy
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import streamed_list
from pilotage.services.shares.accounting import accounts
from pilotage.services.shares.fairness import fairness_report, period, use_report
from pilotage.services.shares.table import entitlements, share_table
from pilotage.wire import shares
from pilotage.wire.shares import ACCOUNTING, FAIRNESS, SHARES, USE

router = CallRouter("shares")


@router.call(SHARES)
async def share_list(context: TheContext, caller: TheCaller) -> shares.ShareTable:
    """The entitled, used and corrected share of every group and owner. All callers get the same table."""
    table = await context.writer.acall(lambda _: entitlements(context.pool))
    return await asyncio.to_thread(share_table, table, context.duties.book.as_of)


@router.call(FAIRNESS)
async def fairness(
    asked: shares.FairnessQuery, context: TheContext, caller: TheCaller
) -> shares.FairnessReport:
    """The entitled share, the expected share and the use of every group and owner over a period."""
    pool, book, since = context.pool, context.duties.book, asked.since
    _check_period(pool.policy, since)
    entitled = await context.writer.acall(lambda _: pool.queues.index.priorities.table())
    end = book.as_of or context.clock()
    report = await asyncio.to_thread(
        lambda: period(context.readers.connection(), book, pool.policy, end - since, end)
    )
    return await asyncio.to_thread(lambda: fairness_report(pool.policy, entitled, report))


@router.call(USE)
def use_of_shares(asked: shares.UseQuery, context: TheContext, caller: TheCaller) -> shares.UseReport:
    """Average running jobs and cores in equal parts of a period: of all groups, or of the owners of one group."""
    book = context.duties.book
    _check_period(context.pool.policy, asked.since)
    end = book.as_of or context.clock()
    return use_report(book, end - asked.since, end, asked.points, asked.group)


def _check_period(policy: Policy, since: float) -> None:
    if since > policy.accounting.history:
        hint = f"accounting.history of the policy is {policy.accounting.history:g} s"
        raise InvalidInput("the history of use is shorter than this period", hint=hint, field="since")


@router.call(ACCOUNTING)
def accounting(asked: shares.AccountingQuery, context: TheContext, caller: TheCaller) -> Response:
    """Use by month, site, group and owner. Administrators see all owners, others only themselves."""
    owner = None if caller.viewer().everything else caller.user
    return streamed_list(accounts(context.readers.connection, asked.begin, asked.end, owner))
