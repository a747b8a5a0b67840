"""Routes for trusted issuers, and for tokens that people get by signing in there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from pilotage.core.errors import Conflict, Forbidden, NotFound, Overloaded
from pilotage.core.identity.claims import read_account
from pilotage.core.policy.new_user import with_user
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.tokens import expiry
from pilotage.services.audit import AuditedCall, audited
from pilotage.services.policy.apply import apply_policy, in_force
from pilotage.services.tokens import changes
from pilotage.store.tables import instance
from pilotage.wire.identity import TokenResponse
from pilotage.wire.issuers import (
    EXCHANGE_TOKEN,
    LIST_ISSUERS,
    TEST_ISSUER,
    IssuerSummary,
    TokenExchange,
)
from pilotage.wire.limits import GivenName

router = CallRouter("tokens")

ATTEMPTS = 3
"""How often a new user is added to a policy that others change meanwhile."""


@router.call(LIST_ISSUERS)
def list_issuers(context: TheContext) -> list[IssuerSummary]:
    """The trusted issuers of the policy, and how they answer."""
    return [_summary(context, name) for name in sorted(context.pool.policy.issuers)]


def _summary(context: Context, name: str) -> IssuerSummary:
    issuer = context.pool.policy.issuers[name]
    state = context.tokens.trusted.state(issuer)
    return IssuerSummary(
        name,
        issuer.url,
        issuer.client,
        list(issuer.scopes),
        list(issuer.audience),
        state.problem,
        state.since,
    )


@router.call(TEST_ISSUER)
async def ask_issuer(issuer: GivenName, context: TheContext, _: TheCaller) -> IssuerSummary:
    """Read the keys of an issuer now."""
    known = context.pool.policy.issuers.get(issuer)
    if known is None:
        raise NotFound(f"the policy has no issuer {issuer}", hint="see `pilotage issuer list`")
    await context.tokens.trusted.look_at(issuer, known, context.clock())
    return _summary(context, issuer)


@router.call(EXCHANGE_TOKEN)
async def exchange_token(body: TokenExchange, context: TheContext) -> TokenResponse:
    """Issue a short token of this server for the user whom a token of a trusted issuer names.

    The claims decide the groups each time, so that a group is lost with the present token at the latest.
    """
    pool, now = context.pool, context.clock()
    name, claims = await context.tokens.trusted.claims(pool.policy, body.token, now, at_sign_in=True)
    await _accept_new_user(context, name, claims)
    caller = context.tokens.issuer.foreign_caller(name, claims, pool.policy, now, body.group)
    if caller.capabilities is not None:
        raise Forbidden(
            "a token with scopes of computing cannot be exchanged: the new one would allow more",
            hint="send it with each call instead, or sign in without these scopes",
        )
    user, group, lifetime = caller.user, caller.group, pool.policy.issuers[name].lifetime
    number = None
    # A full disk must not lock users out. The row only serves listings and the revocation of single tokens.
    with contextlib.suppress(Overloaded):
        number = await context.writer.acall(
            lambda tx: changes.create_token(
                pool.ids,
                tx,
                user,
                group,
                expires=expiry(now, lifetime),
                by=user,
                now=now,
                issuer=name,
            )
        )
    token, expires = context.tokens.issuer.issue(
        user, group, now, lifetime, number=number, issuer=name, signed_in=caller.signed_in
    )
    return TokenResponse(token, expires, user, group, number or 0)


async def _accept_new_user(context: Context, name: str, claims: Mapping[str, Any]) -> None:
    """Add the user of the claims to the policy, if the issuer's new users are accepted and the claims name a group."""
    pool = context.pool
    for _ in range(ATTEMPTS):
        issuer = pool.policy.issuers[name]
        account = read_account(issuer, pool.policy, claims)
        if issuer.new_users != "accept" or account.user in pool.policy.users or not account.groups:
            return
        current = await context.quick_read(instance.current_policy)
        assert current is not None
        text, policy = await asyncio.to_thread(with_user, current.text, account.user, account.groups)
        add = partial(
            apply_policy,
            pool,
            policy=policy,
            text=text,
            by=account.user,
            reason=f"signed in at issuer {name}",
            now=context.clock(),
            expect=current.version,
        )
        target = f"policy: new user {account.user}"
        new = AuditedCall(
            account.user, "", "", EXCHANGE_TOKEN.key, target, f"signed in at issuer {name}", context.clock()
        )
        changed = audited(new, add, state=lambda tx: f"version {in_force(tx)}")
        with contextlib.suppress(Conflict):  # somebody else has applied a policy meanwhile
            await context.writer.acall(changed)
