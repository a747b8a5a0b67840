"""JSON Web Tokens of the server's own issuer: user, group and expiry.

Permissions are not part of a token: the policy in force decides them at every request. A user who has been removed
from the policy can therefore do nothing with an old token. Revocations and keys in force are in memory: a request reads
no row. A token, code or session that was made of another token keeps the instant of its sign-in, and falls with it.
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
CLOCK_SKEW = 60.0
"""Seconds by which the clock of an issuer may be ahead or behind."""
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
    signed_in: float = 0.0
    """When these rights were given first. Renewed tokens, codes and sessions keep it; 0: nobody knows."""
    key: int | None = None
    """The number of our key that has signed the token; None: an issuer has."""

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
        signed_in: float | None = None,
    ) -> tuple[str, float]:
        """A new token and its expiry. `home`: for the owner of the home. `number`: its id, if it is recorded.

        `issuer`: the trusted issuer at which the user has signed in. `signed_in`: of the token that it is made of.
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
        if signed_in is not None:
            claims["auth_time"] = signed_in
        key = self._signing_key(state.keys[state.current].salt)
        return jwt.encode(claims, key, ALGORITHM, headers={"kid": str(state.current)}), expires

    def read(self, token: str, policy: Policy, now: float) -> Caller:
        """The caller of a token. Raises `NotAuthenticated` for a bad token, `Forbidden` without its user."""
        key, claims = self._decode(token)
        expires = _instant(claims["exp"])
        issued = _instant(claims.get("iat", expires - LIFETIME))
        caller = Caller(
            str(claims["sub"]),
            str(claims.get("grp", "")),
            frozenset(),
            expires,
            expires - issued,
            claims.get("own") is True,
            _number(claims.get("jti")),
            str(claims.get("idp", "")),
            signed_in=_instant(claims.get("auth_time", issued)),
            key=key,
        )
        return self.standing(caller, policy, now)

    def standing(self, caller: Caller, policy: Policy, now: float) -> Caller:
        """The caller with the rights of this instant. Raises `NotAuthenticated` or `Forbidden` if they have ended.

        Rights that last longer than one look are decided here at each use: of a token, a code, a session, and of a
        listener that waits.
        """
        state, late = self._state(), CLOCK_SKEW
        if caller.key is not None:
            late = 0.0
            if caller.key not in state.keys or now > state.keys[caller.key].accepted_until:
                raise _key_was_replaced()
        if now >= caller.expires + late:
            raise NotAuthenticated(
                "this token has expired",
                hint="an administrator makes a new one: `pilotage token create USER --out FILE`",
            )
        if state.is_revoked(caller.number, caller.user, caller.signed_in):
            raise NotAuthenticated(
                f"this token of {caller.user} was revoked",
                hint=f"sign in at {caller.issuer} again"
                if caller.issuer
                else "ask an administrator for a new one",
            )
        if caller.issuer and caller.issuer not in policy.issuers:
            raise NotAuthenticated(
                f"issuer {caller.issuer} is not trusted any more",
                hint="`pilotage issuer list` shows the trusted ones",
            )
        user, properties = policy.users.get(caller.user), policy.properties(caller.user, caller.group)
        if caller.home:
            properties |= {ADMINISTRATOR}
        elif user is None or caller.group not in user.groups:
            raise Forbidden(
                f"the policy has no user {caller.user} in group {caller.group}", hint="ask an administrator"
            )
        return replace(caller, properties=properties)

    def foreign_caller(
        self, issuer: str, claims: Mapping[str, object], policy: Policy, now: float, asked_group: str = ""
    ) -> Caller:
        """The caller of a verified token of a trusted issuer. `asked_group`: the group to work in; empty: the first.

        Raises `NotAuthenticated` if the token was revoked or names nobody, `Forbidden` for other users and groups.
        """
        account = read_account(policy.issuers[issuer], policy, claims)
        group = choose_group(policy, account, asked_group)
        expires = _instant(claims["exp"])
        issued = _instant(claims.get("iat", expires - LIFETIME))
        caller = Caller(
            account.user,
            group,
            frozenset(),
            expires,
            expires - issued,
            issuer=issuer,
            capabilities=read_capabilities(claims),
            # A token that does not say when it was issued may be older than any revocation.
            signed_in=_instant(claims.get("iat", 0.0)),
        )
        return self.standing(caller, policy, now)

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

    def _decode(self, token: str) -> tuple[int, dict[str, Any]]:
        """The number of the key and the claims of a token with a valid signature."""
        try:
            number = _number(jwt.get_unverified_header(token).get("kid"))
            key = self._state().keys.get(-1 if number is None else number)
            if number is None or key is None:
                raise _key_was_replaced()
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
        return number, claims

    def _signing_key(self, salt: str) -> str:
        """The key that is made of the key in the secrets and a salt in the store: neither alone is enough."""
        key = self._keys.get(salt)
        if key is None:
            key = hmac.new(self._key.encode(), salt.encode(), hashlib.sha256).hexdigest()
            self._keys[salt] = key
        return key


def _key_was_replaced() -> NotAuthenticated:
    return NotAuthenticated("the key of this token was replaced", hint="ask an administrator for a new token")


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
