"""Authenticates the sender of a request by its header, before more than a small part of the body is read."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pilotage.core.errors import Forbidden, NotAuthenticated, PilotageError
from pilotage.core.identity.claims import CANCEL, COMPUTING, CREATE, MODIFY, READ
from pilotage.core.ids import PilotId
from pilotage.core.policy.model import ADMINISTRATOR
from pilotage.server.context import Context, identity_of
from pilotage.server.http.pilot_endpoints import bearer
from pilotage.server.issuers import TrustedIssuers, is_foreign
from pilotage.server.tokens import Caller
from pilotage.services.pilots.exchange import token_hash
from pilotage.store.tables import pilots
from pilotage.wire.call import Access
from pilotage.wire.identity import GROUP_HEADER

Scope = MutableMapping[str, Any]

PILOT_PREFIX = "/v1/pilot/jobs/"
"""Addresses below this are for pilots, all others for people's programs."""


async def identify(context: Context, scope: Scope, beside: TrustedIssuers | None = None) -> bool:
    """Read the token of a request; returns whether it is valid.

    `beside`: issuers for a check in another thread, which must not change the server. It follows no other server.

    The identity, or the error, is stored in the scope for `context.identity_of`. A valid token makes the connection
    trusted from then on.
    """
    headers = dict(reversed(scope["headers"]))
    asked_group = headers.get(GROUP_HEADER.encode(), b"").decode(errors="replace").strip()
    identity: Caller | PilotId | PilotageError
    try:
        token = bearer(headers.get(b"authorization", b""))
        identity = await _identify_sender(context, scope["path"], token, asked_group, beside)
    except PilotageError as error:
        identity = error
    if isinstance(identity, Caller):
        identity = identity.at(scope.get("client"))
    state = scope.setdefault("state", {})
    state["identity"] = identity
    if isinstance(identity, PilotageError):
        return False
    if "connection" in state:
        state["connection"].trust()
    return True


async def _identify_sender(
    context: Context, path: str, token: str, asked_group: str, beside: TrustedIssuers | None
) -> Caller | PilotId:
    if not path.startswith(PILOT_PREFIX):
        if not token:
            raise NotAuthenticated("no token was given", hint="Authorization: Bearer TOKEN")
        if beside is None:
            # Another server may have answered this caller's last request.
            await context.follow_rules()
        if is_foreign(context.pool.policy, token):
            return await _identify_foreign(context, beside or context.tokens.trusted, token, asked_group)
        caller = context.tokens.issuer.read(token, context.pool.policy, context.clock())
        if asked_group and asked_group != caller.group:
            raise Forbidden(
                f"this token is for group {caller.group}, not for {asked_group[:80]}",
                hint=f"use a token of group {asked_group[:80]}, or leave out the header {GROUP_HEADER}",
            )
        return caller
    if not token:
        raise NotAuthenticated("no token was given", hint="enrol first")
    hashed = token_hash(token)
    pilot = await context.quick_read(lambda connection: pilots.by_token(connection, hashed))
    if pilot is None:
        raise NotAuthenticated("this pilot's token is not known", hint="it was superseded")
    return pilot.id


async def _identify_foreign(
    context: Context, trusted: TrustedIssuers, token: str, asked_group: str
) -> Caller:
    """The caller of a token that a trusted issuer has made for this server."""
    policy = context.pool.policy
    now = context.clock()
    name, claims = await trusted.claims(policy, token, now, at_sign_in=False)
    return context.tokens.issuer.foreign_caller(name, claims, policy, now, asked_group)


def check_standing(context: Context, scope: Scope) -> None:
    """Read the rights of the sender again. Raises NotAuthenticated or Forbidden if they have ended meanwhile."""
    identity = scope["state"]["identity"]
    if isinstance(identity, Caller):
        scope["state"]["identity"] = context.standing(identity)


def check_sender(access: Access, scope: MutableMapping[str, Any]) -> None:
    """Raise NotAuthenticated or Forbidden for a sender that a call does not accept."""
    if not access.token:
        return
    identity = identity_of(scope)
    if isinstance(identity, Caller) and identity.capabilities is not None:
        _need_capability(identity.capabilities, scope["method"], scope["path"])
    if access.properties is None or not isinstance(identity, Caller):
        return
    if not identity.properties & (access.properties | {ADMINISTRATOR}):
        raise Forbidden(
            f"{identity.user} ({identity.group}) may not do this",
            hint=f"the group needs the property {access.meaning} in the policy",
        )


def _need_capability(capabilities: frozenset[str], method: str, path: str) -> None:
    needed = capability_of(method, path)
    if needed is None:
        raise Forbidden(
            "no scope of computing allows this: it would give more rights than the token has",
            hint="`pilotage login` gets a token without scopes of computing",
        )
    if needed not in capabilities:
        allowed = ", ".join(sorted(capabilities)) or "nothing here"
        raise Forbidden(f"this token does not allow {needed}", hint=f"its scopes allow {allowed}")


def capability_of(method: str, path: str) -> str | None:
    """The scope of the WLCG profile that a token with such scopes needs for a call; None: none of them suffices."""
    if method in ("GET", "HEAD") or path.endswith("/check"):
        return READ
    if path.removeprefix("/v1/").partition("/")[0] not in COMPUTING:
        return None
    if path.startswith(("/v1/submissions", "/v1/uploads")):
        return CREATE
    return CANCEL if path.endswith("/kill") else MODIFY
