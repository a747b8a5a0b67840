"""Pages: sign-in by a code of `pilotage web` or by a token, and sign-out."""

from __future__ import annotations

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, PilotageError
from pilotage.server.errors import error_answer
from pilotage.server.tokens import Caller
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit

pages = PageRouter()


@pages.get("/signin", open=True)
async def sign_in(visit: Visit) -> Response:
    """The form for a token. A code signs in at once if the user's machine opened the address, not another page.

    Otherwise a page of others could sign a browser in as somebody else.
    """
    code, back = visit.query.get("code", ""), visit.query.get("next", "")
    headers = visit.request.headers
    if code and headers.get("sec-fetch-site") == "none" and not headers.get("sec-purpose"):
        return await _sign_in(visit, code, "", back)
    ended = "ended" in visit.query
    return await visit.render("signin.html", code=code, back=back, error=None, ended=ended)


@pages.post("/signin", open=True)
async def signed_in(visit: Visit) -> Response:
    """Take the code or the token of the form."""
    form = visit.form
    return await _sign_in(visit, form.get("code", ""), form.get("token", ""), form.get("next", ""))


@pages.post("/signout")
async def sign_out(visit: Visit) -> Response:
    """End the session."""
    response = visit.redirect("signin")
    await visit.end_session(response)
    return response


async def refused(visit: Visit, error: PilotageError, back: str = "") -> Response:
    """The form for a token, with the reason why a sign-in failed."""
    status = error_answer(error)[1]
    return await visit.render("signin.html", status, code="", back=back, error=error, ended=False)


async def _sign_in(visit: Visit, code: str, token: str, back: str) -> Response:
    # Failures are not counted: nobody guesses a code or a token, and a person may share the address of others.
    try:
        caller = _caller(visit, code, token.strip())
    except PilotageError as error:
        return await refused(visit, error, back)
    response = visit.redirect(back)
    await visit.start_session(caller, response)
    return response


def _caller(visit: Visit, code: str, token: str) -> Caller:
    context = visit.context
    if code:
        return context.tokens.sessions.redeem(code, context.standing, context.clock())
    if not token:
        raise InvalidInput("no token was given", hint="`pilotage token create USER` makes one")
    return context.tokens.issuer.read(token, context.pool.policy, context.clock())
