"""The claims of a token of an outside issuer, read by the policy: a user, groups, and rights.

Claims follow OpenID Connect Core 1.0 and the WLCG Common JWT Profiles 1.2. Scopes may follow SciTokens instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.policy.entitlements import Entitlement, read_entitlement, read_source
from pilotage.core.policy.issuer_model import TrustedIssuer
from pilotage.core.policy.model import Policy

MOST_GROUPS = 1000
LONGEST_NAME = 256

READ, CREATE, CANCEL, MODIFY = "compute.read", "compute.create", "compute.cancel", "compute.modify"
CAPABILITIES = frozenset({READ, CREATE, CANCEL, MODIFY})
"""Scopes of the WLCG profile for computing. A token with one of them allows only the calls that its scopes name."""
_SCITOKENS = {"condor:/READ": {READ}, "condor:/WRITE": {CREATE, CANCEL, MODIFY}}
"""Scopes that HTCondor has for SciTokens, as scopes of the profile."""
COMPUTING = frozenset(
    [
        *(
            "submissions",
            "uploads",
            "jobs",
            "outputs",
            "matchmaking",
            "requests",
            "datasets",
            "catalogues",
            "storage",
        ),
        *("agents", "pilots", "ces", "sites", "bans", "issuers"),
    ]
)
"""The first words of addresses, below the version, that these scopes may open for more than a look. Tokens, codes and
the policy are not among them: they would give more rights than the token has."""
_OF_PROFILES = ("compute.", "storage.", "condor:/", "read:/", "write:/")
"""The beginnings of scopes of both profiles. A token with such scopes for another service has no rights here."""


@dataclass(frozen=True, slots=True)
class ClaimedAccount:
    """A user whom claims name, with the groups of the policy that they name; the claim's order."""

    user: str
    groups: tuple[str, ...]


def read_account(issuer: TrustedIssuer, policy: Policy, claims: Mapping[str, object]) -> ClaimedAccount:
    """The user and the groups. Raises NotAuthenticated if a claim is missing or is no name."""
    value = find_claim(claims, issuer.user_claim)
    if not isinstance(value, str) or not value or len(value) > LONGEST_NAME or not value.isprintable():
        raise NotAuthenticated(
            f"the token names no user: its claim {issuer.user_claim} is missing",
            hint="`user_claim` of the issuer in the policy, and the scopes that are asked for",
        )
    user = issuer.users.get(value, value)
    if not issuer.group_claim:
        known = policy.users.get(user)
        return ClaimedAccount(user, () if known is None else tuple(known.groups))
    return ClaimedAccount(user, _groups(issuer, policy, find_claim(claims, issuer.group_claim)))


def find_claim(claims: Mapping[str, object], name: str) -> object:
    """The claim of this name; else dots lead into objects, as in resource_access.pool.roles. None: there is none."""
    if name in claims:
        return claims[name]
    # Names of claims have dots themselves, as wlcg.groups, so the longest name that is there leads on.
    outer, mark, rest = name.rpartition(".")
    while mark:
        inside = claims.get(outer)
        if isinstance(inside, Mapping) and (claim := find_claim(inside, rest)) is not None:
            return claim
        outer, mark, word = outer.rpartition(".")
        rest = f"{word}.{rest}"
    return None


def _groups(issuer: TrustedIssuer, policy: Policy, value: object) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else ()
    keys = _entitlement_keys(issuer)
    names: list[str] = []
    for item in values[:MOST_GROUPS]:
        if isinstance(item, str):
            entitlement = read_entitlement(item)
            if entitlement is None:
                names.append(issuer.groups.get(item, item.removeprefix("/")))
            else:
                names += _entitled_groups(issuer, keys, entitlement)
    return tuple(dict.fromkeys(name for name in names if name in policy.groups))


_Keys = dict[tuple[str, tuple[str, ...]], list[tuple[Entitlement, str]]]


def _entitlement_keys(issuer: TrustedIssuer) -> _Keys:
    """The entitlements in the issuer's table of groups, by namespace and group."""
    keys: _Keys = {}
    for text, group in issuer.groups.items():
        key = read_entitlement(text)
        if key is not None:
            keys.setdefault((key.namespace, key.groups), []).append((key, group))
    return keys


def _entitled_groups(issuer: TrustedIssuer, keys: _Keys, entitlement: Entitlement) -> list[str]:
    """The names of groups to which an entitlement leads. Another authority or namespace than the policy's: none."""
    trusted = entitlement.source in map(read_source, issuer.entitlements)
    names = [
        group
        for key, group in keys.get((entitlement.namespace, entitlement.groups), ())
        if key.role in ("", entitlement.role)
        and (key.authority == entitlement.authority or (trusted and not key.authority))
    ]
    if trusted:
        for path in entitlement.paths:
            names.append(issuer.groups.get(path, path.removeprefix("/")))
    return names


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
    """The rights of the token, as scopes of the WLCG profile; None: all rights of its user.

    `scp` holds the scopes of some issuers, and both claims may be lists. If both are there, both bound the token.
    """
    bounds = [bound for name in ("scope", "scp") if (bound := _bound(claims.get(name))) is not None]
    return frozenset.intersection(*bounds) if bounds else None


def _bound(claim: object) -> frozenset[str] | None:
    """The rights that a claim leaves; None: it bounds nothing. A claim that is neither text nor texts leaves none."""
    texts = [claim] if isinstance(claim, str) else [] if claim is None else claim
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return frozenset()
    bounding = [word for text in texts for word in text.split() if word.startswith(_OF_PROFILES)]
    if not bounding:
        return None
    named = (_SCITOKENS.get(word, {word.partition(":")[0]}) for word in bounding)
    return CAPABILITIES & set[str]().union(*named)
