"""Pages for administrators: the policy and its versions, tokens, bans, and the last changes with their authors."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.server.web.change_form import ChangeForm, ask_first
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.audit import LIST_AUDIT, AuditQuery
from pilotage.wire.bans import BAN_USER, LIFT_BAN, LIST_BANS, BanLift, BanRequest
from pilotage.wire.identity import LIST_TOKENS, REVOKE_TOKENS, RevokeRequest
from pilotage.wire.policy import SHOW_POLICY
from pilotage.wire.queries import EndedQuery, PageQuery

pages = PageRouter(menu="Administration", order=8, administrators=True)

ROWS = 50
CHANGES_SHOWN = 30
ALL_SITES = "*"
"""The word for all sites in a form. A field that was left empty must not mean them."""


@pages.get("/administration")
async def show(visit: Visit) -> Response:
    """The policy in force, tokens, bans, and the last changes."""
    policy = await visit.ask(SHOW_POLICY)
    tokens = await visit.ask(LIST_TOKENS, PageQuery(visit.number("after"), ROWS))
    bans = await visit.ask(LIST_BANS, EndedQuery())
    return await visit.render(
        "administration.html",
        policy=policy,
        tokens=tokens.tokens,
        next=tokens.next,
        bans=bans.bans,
        changes=(await visit.ask(LIST_AUDIT, AuditQuery(limit=CHANGES_SHOWN))).entries,
    )


@pages.get("/administration/ban")
async def ask_to_ban(visit: Visit) -> Response:
    """The effect of a ban, and a form for it."""
    await visit.ask(SHOW_POLICY)  # refused to everybody else
    effects = ["No job of the user starts there, and running ones are killed, until the ban is lifted."]
    inputs = [("user", "User", ""), ("site", f"Site, or {ALL_SITES} for all sites", "")]
    form = ChangeForm(
        "Ban a user?", effects, "Ban", "administration/ban", "administration", {}, True, True, inputs
    )
    return await ask_first(visit, form)


@pages.post("/administration/ban")
async def ban(visit: Visit) -> Response:
    """Ban a user."""
    form = visit.form
    request = BanRequest(
        form.get("user", "").strip(), _banned_site(form), reason=form.get("reason", "").strip()
    )
    await visit.ask(BAN_USER, request)
    return visit.redirect("administration")


@pages.get("/administration/lift")
async def ask_to_lift(visit: Visit) -> Response:
    """The effect of lifting a ban."""
    user, site = visit.query.get("user", ""), visit.query.get("site", "")
    if not any(
        (row.user, row.site or ALL_SITES) == (user, site)
        for row in (await visit.ask(LIST_BANS, EndedQuery())).bans
    ):
        raise NotFound("there is no such ban")
    effects = [f"Jobs of {user} start {'at all sites' if site == ALL_SITES else f'at {site}'} again."]
    fields = {"user": user, "site": site}
    form = ChangeForm("Lift the ban?", effects, "Lift", "administration/lift", "administration", fields)
    return await ask_first(visit, form)


@pages.post("/administration/lift")
async def lift(visit: Visit) -> Response:
    """Lift a ban."""
    form = visit.form
    await visit.ask(
        LIFT_BAN, BanLift(form.get("user", ""), _banned_site(form), form.get("reason", "").strip())
    )
    return visit.redirect("administration")


def _banned_site(given: Mapping[str, str]) -> str | None:
    """The site that a form or an address names; None: all sites. Raises InvalidInput if it names none."""
    site = given.get("site", "").strip()
    if not site:
        raise InvalidInput("no site is given", hint=f"{ALL_SITES} means all sites", field="site")
    return None if site == ALL_SITES else site


@pages.get("/administration/revoke")
async def ask_to_revoke(visit: Visit) -> Response:
    """The effect of revoking a token."""
    number = visit.number("id")
    page = await visit.ask(LIST_TOKENS, PageQuery(number + 1, 1))
    if not page.tokens or page.tokens[0].id != number:
        raise NotFound(f"there is no token {number}")
    token = page.tokens[0]
    effects = [f"Programs and browsers of {token.user} ({token.group}) with this token are signed out."]
    form = ChangeForm(
        f"Revoke token {number}?",
        effects,
        "Revoke",
        "administration/revoke",
        "administration",
        {"id": str(number)},
        danger=True,
        takes_reason=False,
    )
    return await ask_first(visit, form)


@pages.post("/administration/revoke")
async def revoke(visit: Visit) -> Response:
    """Revoke a token."""
    given = visit.form.get("id", "")
    await visit.ask(REVOKE_TOKENS, RevokeRequest(int(given) if given.isdecimal() and len(given) < 19 else 0))
    return visit.redirect("administration")
