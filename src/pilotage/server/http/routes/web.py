"""The route for codes with which a browser signs in."""

from __future__ import annotations

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.wire.web import CREATE_SIGN_IN_CODE, SignInCode

router = CallRouter("tokens")


@router.call(CREATE_SIGN_IN_CODE)
async def create_sign_in_code(context: TheContext, caller: TheCaller) -> SignInCode:
    """A code for the sign-in of a browser as the caller. It works once, for a minute."""
    code, expires = context.tokens.sessions.new_code(caller, context.clock(), context.pool.secrets)
    return SignInCode(f"/signin?code={code}", expires)
