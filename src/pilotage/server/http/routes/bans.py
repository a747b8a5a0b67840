"""Routes for bans of users from sites."""

from __future__ import annotations

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.server.http.auditing import audited_call, utc_text
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.services.audit import audited
from pilotage.services.pilots import banned_owners
from pilotage.services.policy import bans as ban_service
from pilotage.store.tables import bans
from pilotage.store.tables.bans import BanRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.bans import BAN_USER, LIFT_BAN, LIST_BANS, BanLift, BanList, BanRequest, BanSummary
from pilotage.wire.queries import EndedQuery

router = CallRouter("administration")

BANS_SHOWN = 1000
"""Bans in a list that includes ended ones."""


@router.call(LIST_BANS)
def list_bans(asked: EndedQuery, context: TheContext, caller: TheCaller) -> BanList:
    """The bans in force; with `all` ended ones too. Administrators see all, of a site its own, others their own."""
    connection = context.readers.connection()
    rows = bans.recent(connection, BANS_SHOWN) if asked.all else bans.in_force(connection)
    policy = context.pool.policy
    return BanList(
        [_summary(row) for row in rows if row.owner == caller.user or caller.administers(policy, row.site)]
    )


@router.call(BAN_USER)
async def ban_user(body: BanRequest, context: TheContext, caller: TheCaller) -> BanSummary:
    """Ban a user from a site, or from all sites. Running jobs there are killed. Administrators, of a site for it."""
    site = body.site or ""
    caller.need_site_administrator(context.pool.policy, site)
    pool, now = context.pool, context.clock()
    if site and site not in pool.policy.sites:
        raise NotFound(f"the policy has no site {site}", hint="see `pilotage site list`")
    if body.until is not None and body.until <= now:
        raise InvalidInput("until: the instant is in the past", field="until")
    row = await context.writer.acall(
        audited(
            audited_call(context, caller, BAN_USER, _target(body.user, site), body.reason),
            lambda tx: ban_service.ban(
                pool, tx, body.user, site, by=caller.user, reason=body.reason, now=now, until=body.until
            ),
            state=lambda tx: _ban_text(tx, body.user, site),
        )
    )
    while await context.writer.acall(lambda tx: banned_owners.send_away(pool, tx)):
        pass
    while await context.writer.acall(lambda tx: ban_service.enforce_bans(pool, tx, now)):
        pass
    context.wake.local_ces.set()
    return _summary(row)


@router.call(LIFT_BAN)
async def lift_ban(body: BanLift, context: TheContext, caller: TheCaller) -> BanSummary:
    """End a ban. Administrators, of a site for bans from it."""
    site = body.site or ""
    caller.need_site_administrator(context.pool.policy, site)
    pool, now = context.pool, context.clock()
    row = await context.writer.acall(
        audited(
            audited_call(context, caller, LIFT_BAN, _target(body.user, site), body.reason),
            lambda tx: ban_service.lift(
                pool, tx, body.user, site, by=caller.user, reason=body.reason, now=now
            ),
            state=lambda tx: _ban_text(tx, body.user, site),
        )
    )
    context.wake.local_ces.set()
    return _summary(row._replace(ended=now, ended_by=caller.user))


def _target(user: str, site: str) -> str:
    return f"{user} at {f'site {site}' if site else 'all sites'}"


def _ban_text(tx: Transaction, user: str, site: str) -> str:
    """The ban in force, for the audit log."""
    for row in bans.in_force(tx.connection):
        if (row.owner, row.site) == (user, site):
            return "banned" if row.until is None else f"banned until {utc_text(row.until)}"
    return "not banned"


def _summary(row: BanRow) -> BanSummary:
    return BanSummary(
        row.owner, row.site, row.banned_by, row.reason, row.since, row.until, row.ended, row.ended_by
    )
