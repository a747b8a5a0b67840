"""Pages: the policy, its versions with their differences, and a form that tries a change before it applies it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, PilotageError
from pilotage.core.plurals import plural
from pilotage.core.policy import changes
from pilotage.core.policy.differences import PolicyDifference
from pilotage.server.errors import error_answer
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.policy import (
    CHANGE_POLICY,
    LIST_VERSIONS,
    SHOW_POLICY,
    SHOW_VERSION,
    PolicyChange,
    PolicyDocument,
)
from pilotage.wire.queries import PageQuery

pages = PageRouter()

ROWS = 100
MOST_DIFFERENCES = 500
"""Rows of a list of differences."""
VALUE_SHOWN = 300
"""Characters of a value in a list of differences."""
Difference = tuple[str, str, str, str]
"""Key, kind of change, value before, and value after."""


@pages.get("/administration/policy")
async def edit(visit: Visit) -> Response:
    """The text of the policy in force in a form. Nothing is changed before it was tried."""
    current = await visit.ask(SHOW_POLICY)
    return await _form(visit, current, current.text, "")


@pages.post("/administration/policy")
async def try_or_apply(visit: Visit) -> Response:
    """Tell the effects of a policy, or apply it."""
    current = await visit.ask(SHOW_POLICY)
    form = visit.form
    text = form.get("text", "").replace("\r\n", "\n")
    reason, expected = form.get("reason", "").strip(), form.get("expect", "")
    applied = form.get("act") == "apply"
    expect = int(expected) if expected.isdecimal() and len(expected) < 19 else current.version
    change = PolicyChange(text, dry_run=not applied, reason=reason, expect=expect)
    try:
        document = await visit.ask(CHANGE_POLICY, change)
    except PilotageError as error:
        return await _form(visit, current, text, reason, error=error)
    if applied:
        return visit.redirect(f"administration/policy/{document.version}")
    return await _form(visit, current, text, reason, tried=document)


@pages.get("/administration/versions")
async def show_versions(visit: Visit) -> Response:
    """The versions of the policy, the newest first."""
    page = await visit.ask(LIST_VERSIONS, PageQuery(visit.number("after"), ROWS))
    return await visit.render("policy_versions.html", versions=page.versions, next=page.next)


@pages.get("/administration/policy/{version:int}")
async def show_version(visit: Visit, version: int) -> Response:
    """One version: its text, and its differences from the version before."""
    document = await visit.ask(SHOW_VERSION, version=version)
    before = await visit.ask(SHOW_VERSION, version=version - 1) if version > 1 else None
    current = await visit.ask(SHOW_POLICY)
    return await visit.render(
        "policy_version.html",
        document=document,
        current=current,
        differences=await differences(before.text if before else "", document.text),
    )


async def _form(
    visit: Visit,
    current: PolicyDocument,
    text: str,
    reason: str,
    *,
    tried: PolicyDocument | None = None,
    error: PilotageError | None = None,
) -> Response:
    return await visit.render(
        "policy.html",
        200 if error is None else error_answer(error)[1],
        current=current,
        text=text,
        reason=reason,
        tried=tried,
        error=error,
        differences=[] if tried is None else await differences(current.text, text),
    )


async def differences(before: str, after: str) -> list[Difference]:
    """The keys that differ, with both values. Texts of old versions may be no TOML any more: none is told then."""
    try:
        rows: Sequence[PolicyDifference] = await asyncio.to_thread(changes, before, after)
    except InvalidInput:
        return []
    shown: list[Difference] = [
        (row.key, row.change, _shown(row.before), _shown(row.after)) for row in rows[:MOST_DIFFERENCES]
    ]
    left = len(rows) - len(shown)
    return [*shown, (plural(left, "more key"), "", "", "")] if left else shown


def _shown(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= VALUE_SHOWN else text[:VALUE_SHOWN] + " …"
