"""JSON Web Tokens of the server's own issuer: user, group and expiry.

Permissions are not part of a token: the policy in force decides them at every request. A user who has been removed
from the policy can therefore do nothing with an old token. Revocations and keys in force are in memory: a request reads
no row.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt

from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.identity.claims import choose_group, read_account, read_capabilities
from pilotage.core.policy import ADMINISTRATOR, JOB_ADMINISTRATOR, JOB_SHARING, Policy
from pilotage.server.private_files import write_private
from pilotage.services.pool.token_state import LONGEST_LIFETIME, TokenState
from pilotage.store.tables.selections import Viewer
from pilotage.wire.limits import MAX_INSTANT

ALGORITHM = "HS256"
LIFETIME = 43200.0
LONGEST_ADDRESS = 45
"""Characters of an IPv6 address, at most."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who makes a request."""

    user: str
    group: str
    properties: frozenset[str]
    expires: float
    lifetime: float = LIFETIME
    """Seconds between the token's issue and its end."""
    home: bool = False
    """Whether it is the token of the home's owner, who is always an administrator of their server."""
    number: int | None = None
    """The id of the token; None: it is not recorded."""
    issuer: str = ""
    """The trusted issuer at which the user has signed in."""
    capabilities: frozenset[str] | None = None
    """The rights of a token of an issuer (`core.identity.claims`); None: all rights of its user."""
    address: str = ""
    """The address that the request comes from."""

    def at(self, client: tuple[str, int] | None) -> Caller:
        """The caller of a request from this address, which is a text of any length if a proxy has named it."""
        return replace(self, address=client[0][:LONGEST_ADDRESS]) if client else self

    @property
    def administrator(self) -> bool:
        return ADMINISTRATOR in self.properties

    def viewer(self) -> Viewer:
        everything = self.administrator or JOB_ADMINISTRATOR in self.properties
        return Viewer(self.user, self.group if JOB_SHARING in self.properties else "", everything)

    def administers(self, policy: Policy, site: str) -> bool:
        """Whether the caller is an administrator, or one of this site. An empty name stands for all sites."""
        known = policy.sites.get(site)
        return self.administrator or (known is not None and self.user in known.administrators)

    def need_site_administrator(self, policy: Policy, site: str) -> None:
        if not self.administers(policy, site):
            place = f"site {site}" if site else "all sites"
            raise Forbidden(
                f"{self.user} ({self.group}) is no administrator of {place}",
                hint=f"the property {ADMINISTRATOR}, or `administrators` of the site in the policy",
            )

    def need_administrator(self) -> None:
        if not self.administrator:
            raise Forbidden(
                f"{self.user} ({self.group}) is no administrator", hint=f"the property {ADMINISTRATOR}"
            )


class Issuer:
    """Signs and reads tokens."""

    def __init__(self, key: str, instance: str, state: Callable[[], TokenState] = TokenState) -> None:
        """`key`: the key in the home's secrets. `state`: the keys made of it, and the revoked tokens."""
        self._key = key
        self._instance = instance
        self._state = state
        self._keys: dict[str, str] = {"": key}
        """Keys of the signature, by salt."""

    def issue(
        self,
        user: str,
        group: str,
        now: float,
        lifetime: float = LIFETIME,
        *,
        home: bool = False,
        number: int | None = None,
        issuer: str = "",
    ) -> tuple[str, float]:
        """A new token and its expiry. `home`: for the owner of the home. `number`: its id, if it is recorded.

        `issuer`: the trusted issuer at which the user has signed in.
        """
        expires, state = expiry(now, lifetime), self._state()
        claims = {
            "iss": self._instance,
            "sub": user,
            "grp": group,
            "iat": round(now, 3),
            "exp": expires,
            "jti": secrets.token_hex(8) if number is None else str(number),
        }
        if home:
            claims["own"] = True
        if issuer:
            claims["idp"] = issuer
        key = self._signing_key(state.keys[state.current].salt)
        return jwt.encode(claims, key, ALGORITHM, headers={"kid": str(state.current)}), expires

    def read(self, token: str, policy: Policy, now: float) -> Caller:
        """The caller of a token. Raises `NotAuthenticated` for a bad token, `Forbidden` without its user."""
        state = self._state()
        claims = self._decode(token, state, now)
        expires = _instant(claims["exp"])
        if now >= expires:
            raise NotAuthenticated(
                "this token has expired",
                hint="an administrator makes a new one: `pilotage token create USER --out FILE`",
            )
        user, group = str(claims["sub"]), str(claims.get("grp", ""))
        issued = _instant(claims.get("iat", expires - LIFETIME))
        number = _number(claims.get("jti"))
        if state.is_revoked(number, user, issued):
            raise NotAuthenticated("this token was revoked", hint="ask an administrator for a new one")
        issuer = str(claims.get("idp", ""))
        if issuer and issuer not in policy.issuers:
            raise NotAuthenticated(
                f"issuer {issuer} is not trusted any more",
                hint="`pilotage issuer list` shows the trusted ones",
            )
        properties, home = policy.properties(user, group), claims.get("own") is True
        if home:
            properties |= {ADMINISTRATOR}
        elif user not in policy.users or group not in policy.users[user].groups:
            raise Forbidden(f"the policy has no user {user} in group {group}", hint="ask an administrator")
        return Caller(user, group, properties, expires, expires - issued, home, number, issuer)

    def foreign_caller(
        self, issuer: str, claims: Mapping[str, object], policy: Policy, asked_group: str = ""
    ) -> Caller:
        """The caller of a verified token of a trusted issuer. `asked_group`: the group to work in; empty: the first.

        Raises `NotAuthenticated` if the token was revoked or names nobody, `Forbidden` for other users and groups.
        """
        account = read_account(policy.issuers[issuer], policy, claims)
        group = choose_group(policy, account, asked_group)
        expires = _instant(claims["exp"])
        issued = _instant(claims.get("iat", expires - LIFETIME))
        if self._state().is_revoked(None, account.user, issued):
            raise NotAuthenticated(
                f"the tokens of {account.user} were revoked", hint=f"sign in at {issuer} again"
            )
        return Caller(
            account.user,
            group,
            policy.properties(account.user, group),
            expires,
            expires - issued,
            issuer=issuer,
            capabilities=read_capabilities(claims),
        )

    def signed_with(self, key: str, token: str, salts: Callable[[str], str]) -> str:
        """The same token, signed with another key in the place of the home's. An invalid signature stays invalid.

        `salts`: makes another salt of each in the store.
        """
        try:
            number = _number(jwt.get_unverified_header(token).get("kid"))
            known = self._state().keys[-1 if number is None else number]
            claims = jwt.decode(
                token,
                self._signing_key(known.salt),
                [ALGORITHM],
                options={"verify_exp": False, "verify_iat": False},
            )
        except (jwt.InvalidTokenError, KeyError):
            return f"{token.rpartition('.')[0]}.{'A' * 43}"
        other = Issuer(key, self._instance)._signing_key(salts(known.salt))
        return jwt.encode(claims, other, ALGORITHM, headers={"kid": str(number)})

    def _decode(self, token: str, state: TokenState, now: float) -> dict[str, Any]:
        """The claims of a token with a valid signature."""
        try:
            number = _number(jwt.get_unverified_header(token).get("kid"))
            key = state.keys.get(-1 if number is None else number)
            if key is None or now > key.accepted_until:
                raise NotAuthenticated(
                    "the key of this token was replaced", hint="ask an administrator for a new token"
                )
            claims: dict[str, Any] = jwt.decode(
                token,
                self._signing_key(key.salt),
                [ALGORITHM],
                issuer=self._instance,
                options={"require": ["exp", "sub", "iss"], "verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidIssuerError:
            raise NotAuthenticated(
                "this token is of another Pilotage server", hint="use the token file in this server's home"
            ) from None
        except jwt.InvalidTokenError:
            raise NotAuthenticated(
                "this token is not valid", hint="ask an administrator for a new one"
            ) from None
        return claims

    def _signing_key(self, salt: str) -> str:
        """The key that is made of the key in the secrets and a salt in the store: neither alone is enough."""
        key = self._keys.get(salt)
        if key is None:
            key = hmac.new(self._key.encode(), salt.encode(), hashlib.sha256).hexdigest()
            self._keys[salt] = key
        return key


def expiry(now: float, lifetime: float) -> float:
    """When a token that is issued now expires."""
    return round(now + min(max(lifetime, 1.0), LONGEST_LIFETIME), 3)


def _instant(claim: object) -> float:
    """The instant that a claim holds. Raises `NotAuthenticated` for any other value."""
    if isinstance(claim, bool) or not isinstance(claim, int | float) or not abs(claim) <= MAX_INSTANT:
        raise NotAuthenticated("this token is not valid", hint="ask an administrator for a new one")
    return float(claim)


def _number(text: object) -> int | None:
    """The number that a claim holds; None if it holds none."""
    return (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 16 else None
    )


def signing_key(path: Path) -> str:
    """The key of this home, created at the first start and readable by its owner only."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(48))
    return path.read_text().strip()


def fingerprint(key: str) -> str:
    """A short hash that identifies a key without revealing it."""
    return hashlib.sha256(f"pilotage signing key {key}".encode()).hexdigest()[:16]
