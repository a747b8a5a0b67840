"""The claims of a token of an outside issuer, read by the policy: a user, groups, and rights.

Claims follow OpenID Connect Core 1.0 and the WLCG Common JWT Profiles 1.2. Scopes may follow SciTokens instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.policy.issuer_model import TrustedIssuer
from pilotage.core.policy.model import Policy

MOST_GROUPS = 1000
LONGEST_NAME = 256

READ, CREATE, CANCEL, MODIFY = "compute.read", "compute.create", "compute.cancel", "compute.modify"
CAPABILITIES = frozenset({READ, CREATE, CANCEL, MODIFY})
"""Scopes of the WLCG profile for computing. A token with one of them allows only the calls that its scopes name."""
_SCITOKENS = {"condor:/READ": {READ}, "condor:/WRITE": {CREATE, CANCEL, MODIFY}}
"""Scopes that HTCondor has for SciTokens, as scopes of the profile."""


@dataclass(frozen=True, slots=True)
class ClaimedAccount:
    """A user whom claims name, with the groups of the policy that they name; the claim's order."""

    user: str
    groups: tuple[str, ...]


def read_account(issuer: TrustedIssuer, policy: Policy, claims: Mapping[str, object]) -> ClaimedAccount:
    """The user and the groups. Raises NotAuthenticated if a claim is missing or is no name."""
    value = claims.get(issuer.user_claim)
    if not isinstance(value, str) or not value or len(value) > LONGEST_NAME or not value.isprintable():
        raise NotAuthenticated(
            f"the token names no user: its claim {issuer.user_claim} is missing",
            hint="`user_claim` of the issuer in the policy, and the scopes that are asked for",
        )
    return ClaimedAccount(issuer.users.get(value, value), _groups(issuer, policy, claims))


def _groups(issuer: TrustedIssuer, policy: Policy, claims: Mapping[str, object]) -> tuple[str, ...]:
    value = claims.get(issuer.group_claim, ())
    values = value.split() if isinstance(value, str) else value if isinstance(value, list) else ()
    names = (
        issuer.groups.get(item, item.removeprefix("/"))
        for item in values[:MOST_GROUPS]
        if isinstance(item, str)
    )
    return tuple(dict.fromkeys(name for name in names if name in policy.groups))


def choose_group(policy: Policy, account: ClaimedAccount, asked: str) -> str:
    """The group of a new token: the one asked for, else the first that claim and policy both give. Raises Forbidden."""
    user = policy.users.get(account.user)
    if user is None:
        raise Forbidden(
            f"the policy has no user {account.user}",
            hint="an administrator adds [users.NAME], or sets new_users of the issuer to accept",
        )
    allowed = [group for group in account.groups if group in user.groups]
    if not allowed:
        claimed = ", ".join(account.groups) or "none of this policy"
        raise Forbidden(
            f"{account.user} is in no group here: the issuer names {claimed}, the policy {', '.join(user.groups)}",
            hint="`groups` of the issuer and of the user in the policy",
        )
    if asked and asked not in allowed:
        raise Forbidden(
            f"{account.user} is not in group {asked}", hint=f"groups to choose from: {', '.join(allowed)}"
        )
    return asked or allowed[0]


def read_capabilities(claims: Mapping[str, object]) -> frozenset[str] | None:
    """The rights of the token, as scopes of the WLCG profile; None: all rights of its user."""
    value = claims.get("scope", "")
    words = value.split() if isinstance(value, str) else []
    named = (_SCITOKENS.get(word, {word.partition(":")[0]}) for word in words)
    return CAPABILITIES & set[str]().union(*named) or None
