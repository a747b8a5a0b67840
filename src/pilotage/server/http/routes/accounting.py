"""The route of the attempts that accounting counts."""

from __future__ import annotations

from fastapi import Response

from pilotage.core.policy import Policy
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import encoded
from pilotage.services.shares.accounting import check_settled
from pilotage.store.tables import accounted
from pilotage.store.tables.accounted import AccountedRow
from pilotage.wire.accounting import (
    LIST_ACCOUNTED,
    AccountedAttempt,
    AccountedPage,
    AccountedPosition,
    AccountedQuery,
)

router = CallRouter("shares")


@router.call(LIST_ACCOUNTED)
def list_accounted(asked: AccountedQuery, context: TheContext, caller: TheCaller) -> Response:
    """The attempts that ended in a period, by their end. Administrators see all owners, others only themselves."""
    check_settled(asked.end, context.clock())
    owner = None if caller.viewer().everything else caller.user
    after = (asked.after_end, asked.after_job, asked.after_epoch)
    rows = accounted.page(context.readers.connection(), asked.begin, asked.end, after, asked.limit, owner)
    policy, last = context.pool.policy, rows[-1] if len(rows) == asked.limit else None
    return encoded(
        AccountedPage(
            [_attempt(policy, row) for row in rows],
            None if last is None else AccountedPosition(last.ended, last.job, last.epoch),
        )
    )


def _attempt(policy: Policy, row: AccountedRow) -> AccountedAttempt:
    group, user = policy.groups.get(row.group), policy.users.get(row.owner)
    return AccountedAttempt(*row, vo=group.vo if group else "", subject=user.subject if user else "")
