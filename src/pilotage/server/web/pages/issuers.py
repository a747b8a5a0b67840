"""Pages: sign-in at a trusted issuer, by authorization code with PKCE (RFC 6749, RFC 7636, OpenID Connect Core 1.0)."""

from __future__ import annotations

import hmac
from urllib.parse import urlencode, urlsplit

from starlette.responses import Response

from pilotage.core.errors import NotAuthenticated, NotFound, PilotageError
from pilotage.core.policy.issuer_model import TrustedIssuer
from pilotage.server.web.page import PageRouter
from pilotage.server.web.pages.signin import refused
from pilotage.server.web.rendering import HEADERS
from pilotage.server.web.visit import Visit
from pilotage.wire.issuers import EXCHANGE_TOKEN, TokenExchange

pages = PageRouter()


@pages.get("/signin-at", open=True)
async def go_to_issuer(visit: Visit) -> Response:
    """Send the browser to the issuer. A cookie lets this browser alone come back with the answer."""
    tokens, now, name = visit.context.tokens, visit.context.clock(), visit.query.get("issuer", "")
    issuer = _issuer(visit, name)
    documents = await tokens.trusted.addresses(name, issuer, now)
    begun, cookie = tokens.visits.begin(name, visit.query.get("next", ""), now, visit.context.pool.secrets)
    asked = {
        "response_type": "code",
        "client_id": issuer.web_client,
        "redirect_uri": _redirect(issuer),
        "scope": " ".join(scope for scope in issuer.scopes if scope != "offline_access"),
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": begun.challenge,
        "code_challenge_method": "S256",
    }
    joint = "&" if urlsplit(documents.authorization_endpoint).query else "?"
    address = f"{documents.authorization_endpoint}{joint}{urlencode(asked)}"
    response = Response(status_code=303, headers={**HEADERS, "Location": address})
    visit.set_visit_cookie(response, cookie)
    return response


@pages.get("/signin-back", open=True)
async def come_back(visit: Visit) -> Response:
    """Take the code of the issuer, and begin a session.

    The page that follows leads on by a link: browsers send no strict cookie after a redirect from another host.
    """
    context = visit.context
    try:
        begun = context.tokens.visits.finish(
            visit.query.get("state", ""), visit.visit_cookie, context.clock()
        )
        if error := visit.query.get("error", ""):
            reason = visit.query.get("error_description", "") or error
            raise NotAuthenticated(f"{begun.issuer} has refused the sign-in: {reason[:300]}")
        proof = await _proof(visit, begun.issuer, begun.verifier, begun.nonce)
        answer = await visit.ask(EXCHANGE_TOKEN, TokenExchange(proof))
        caller = context.tokens.issuer.read(answer.token, context.pool.policy, context.clock())
        response = await visit.render("signed_in.html", user=caller.user, back=visit.safe_address(begun.back))
        await visit.start_session(caller, response)
    except PilotageError as error:
        return await refused(visit, error)
    visit.set_visit_cookie(response, "")  # it counts once
    return response


async def _proof(visit: Visit, name: str, verifier: str, nonce: str) -> str:
    """The ID token of this sign-in, and of no other one."""
    context, issuer = visit.context, _issuer(visit, name)
    trusted, now = context.tokens.trusted, context.clock()
    documents = await trusted.addresses(name, issuer, now)
    code = visit.query.get("code", "")
    proof = await trusted.redeem_code(issuer, documents.token_endpoint, code, verifier, _redirect(issuer))
    _, claims = await trusted.claims(context.pool.policy, proof, now, at_sign_in=True)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise NotAuthenticated("the issuer has answered another sign-in", hint="begin it again")
    return proof


def _issuer(visit: Visit, name: str) -> TrustedIssuer:
    issuer = visit.context.pool.policy.issuers.get(name)
    if issuer is None or not issuer.web_client:
        raise NotFound(f"nobody can sign in at {name[:100]} by a browser")
    return issuer


def _redirect(issuer: TrustedIssuer) -> str:
    return issuer.web_address.rstrip("/") + "/signin-back"
