"""Routes for tokens: created, renewed, listed, revoked; rotation of the key that signs them."""

from __future__ import annotations

import contextlib

from fastapi import Response

from pilotage.core.errors import Forbidden, InvalidInput, NotFound, Overloaded
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.tokens import expiry
from pilotage.services.audit import audited
from pilotage.services.tokens import changes
from pilotage.store.tables import tokens
from pilotage.store.tables.tokens import TokenRow
from pilotage.wire.identity import (
    CREATE_TOKEN,
    LIST_TOKENS,
    REFRESH_TOKEN,
    RENEW_HOME_TOKEN,
    REVOKE_TOKENS,
    ROTATE_KEY,
    RevokeRequest,
    RevokeResponse,
    RotateKeyRequest,
    RotateKeyResponse,
    TokenRequest,
    TokenResponse,
    TokensPage,
    TokenSummary,
)
from pilotage.wire.queries import PageQuery

router = CallRouter("tokens")


@router.call(CREATE_TOKEN)
async def create_token(body: TokenRequest, context: TheContext, caller: TheCaller) -> TokenResponse:
    """Issue a token for any user of the policy. Administrators only. The event log records it without the token."""
    user = context.pool.policy.users.get(body.user)
    if user is None:
        raise NotFound(f"the policy has no user {body.user}", hint="add [users.NAME] and apply the policy")
    group = body.group or user.groups[0]
    if group not in user.groups:
        raise InvalidInput(f"{body.user} is not in group {group}", hint=f"groups: {', '.join(user.groups)}")
    now, pool = context.clock(), context.pool
    expires = expiry(now, body.lifetime)
    number = await context.writer.acall(
        audited(
            audited_call(context, caller, CREATE_TOKEN, f"tokens of {body.user} ({group})"),
            lambda tx: changes.create_token(
                pool.ids, tx, body.user, group, expires=expires, by=caller.user, now=now
            ),
            made=lambda number: f"token {number}, for {expires - now:.0f} s",
        )
    )
    token, expires = context.tokens.issuer.issue(body.user, group, now, body.lifetime, number=number)
    return TokenResponse(token, expires, body.user, group, number)


@router.call(LIST_TOKENS)
async def list_tokens(asked: PageQuery, context: TheContext, caller: TheCaller) -> TokensPage:
    """Tokens that administrators have made, newest first: all for administrators, else the caller's own."""
    owner = None if caller.administrator else caller.user
    rows = await context.quick_read(
        lambda connection: tokens.page(connection, asked.after, asked.limit + 1, owner)
    )
    shown = [_summary(row) for row in rows[: asked.limit]]
    return TokensPage(shown, shown[-1].id if len(rows) > asked.limit else None)


def _token_text(row: TokenRow | None) -> str:
    if row is None:
        return ""
    return f"{'valid' if row.revoked is None else 'revoked'}, of {row.owner} ({row.group})"


def _summary(row: TokenRow) -> TokenSummary:
    return TokenSummary(
        row.id, row.owner, row.group, row.issued, row.expires, row.issued_by, row.revoked, row.revoked_by
    )


@router.call(REVOKE_TOKENS)
async def revoke(body: RevokeRequest, context: TheContext, caller: TheCaller) -> RevokeResponse:
    """Revoke one token, all tokens of a user, or the token of a pilot. Users may revoke their own tokens."""
    if bool(body.id) + bool(body.user) + bool(body.pilot) != 1:
        raise InvalidInput("give exactly one of id, user and pilot")
    pool, writer, now, by = context.pool, context.writer, context.clock(), caller.user
    if body.pilot:
        caller.need_administrator()
        called = audited_call(context, caller, REVOKE_TOKENS, f"token of pilot {body.pilot}")
        await writer.acall(
            audited(
                called,
                lambda tx: changes.revoke_pilot(pool, tx, body.pilot, by=by, now=now),
                made=lambda _: "revoked",
            )
        )
        context.wake.local_ces.set()
        return RevokeResponse(1)
    if body.user:
        if body.user != caller.user:
            caller.need_administrator()
        called = audited_call(context, caller, REVOKE_TOKENS, f"tokens of {body.user}")
        return RevokeResponse(
            await writer.acall(
                audited(
                    called,
                    lambda tx: changes.revoke_tokens_of(pool, tx, body.user, by=by, now=now),
                    made=lambda count: f"all revoked, {count:,} of them listed",
                )
            )
        )
    owner = None if caller.administrator else caller.user
    await writer.acall(
        audited(
            audited_call(context, caller, REVOKE_TOKENS, f"token {body.id}"),
            lambda tx: changes.revoke_token(pool, tx, body.id, owner=owner, by=by, now=now),
            state=lambda tx: _token_text(tokens.by_id(tx.connection, body.id)),
        )
    )
    return RevokeResponse(1)


@router.call(ROTATE_KEY)
async def rotate_key(body: RotateKeyRequest, context: TheContext, caller: TheCaller) -> RotateKeyResponse:
    """Sign new tokens with a new key. Administrators only. Use renews tokens, so nobody notices within the grace."""
    pool, now, salt = context.pool, context.clock(), context.pool.secrets.token_urlsafe(32)
    number = await context.writer.acall(
        audited(
            audited_call(context, caller, ROTATE_KEY, "key that signs tokens"),
            lambda tx: changes.rotate_key(pool, tx, salt, grace=body.grace, by=caller.user, now=now),
            made=lambda number: f"key {number}; tokens of others are accepted for {body.grace:.0f} s",
        )
    )
    return RotateKeyResponse(number, now + body.grace)


@router.call(REFRESH_TOKEN)
async def refresh_token(context: TheContext, caller: TheCaller) -> TokenResponse:
    """Issue a new token for the user of the current one, with the same id."""
    if caller.issuer:
        raise Forbidden(
            f"a token by issuer {caller.issuer} is renewed by a new sign-in there",
            hint="`pilotage login URL`",
        )
    number = caller.number
    token, expires = context.tokens.issuer.issue(
        caller.user,
        caller.group,
        context.clock(),
        caller.lifetime,
        home=caller.home,
        number=number,
        signed_in=caller.signed_in,
    )
    if number is not None:
        # A full disk must not lock users out. The end of the row only serves listings.
        with contextlib.suppress(Overloaded):
            await context.writer.acall(lambda tx: tokens.extend(tx.connection, number, expires))
    return TokenResponse(token, expires, caller.user, caller.group, number or 0)


@router.call(RENEW_HOME_TOKEN)
def renew_home_token(context: TheContext) -> Response:
    """Make sure that the token file in the server's home holds a valid token. Needs no token and returns none.

    Only the owner of the home can read that file.
    """
    context.tokens.home.ensure()
    return Response(status_code=204)
