"""JSON Web Tokens of the server's own issuer: user, group and expiry.

Permissions are not part of a token: the policy in force decides them at every request. A user who has been removed
from the policy can therefore do nothing with an old token.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

import jwt

from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.policy import ADMINISTRATOR, JOB_ADMINISTRATOR, JOB_SHARING, Policy
from pilotage.store.tables.selections import Viewer

ALGORITHM = "HS256"
LIFETIME = 43200.0
LONGEST = 30 * 86400.0


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

    @property
    def administrator(self) -> bool:
        return ADMINISTRATOR in self.properties

    def viewer(self) -> Viewer:
        everything = self.administrator or JOB_ADMINISTRATOR in self.properties
        return Viewer(self.user, self.group if JOB_SHARING in self.properties else "", everything)

    def need_administrator(self) -> None:
        if not self.administrator:
            raise Forbidden(
                f"{self.user} ({self.group}) is no administrator", hint=f"the property {ADMINISTRATOR}"
            )


class Issuer:
    """Signs and reads tokens."""

    def __init__(self, key: str, instance: str) -> None:
        self._key = key
        self._instance = instance

    def issue(
        self, user: str, group: str, now: float, lifetime: float = LIFETIME, *, home: bool = False
    ) -> tuple[str, float]:
        """A new token and its expiry. `home`: for the owner of the home."""
        expires = now + min(max(lifetime, 1.0), LONGEST)
        claims = {
            "iss": self._instance,
            "sub": user,
            "grp": group,
            "iat": int(now),
            "exp": int(expires),
            "jti": secrets.token_hex(8),
        }
        if home:
            claims["own"] = True
        return jwt.encode(claims, self._key, ALGORITHM), float(int(expires))

    def read(self, token: str, policy: Policy, now: float) -> Caller:
        """The caller of a token. Raises `NotAuthenticated` for a bad token, `Forbidden` without its user."""
        try:
            claims = jwt.decode(
                token,
                self._key,
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
        expires = float(claims["exp"])
        if now >= expires:
            raise NotAuthenticated(
                "this token has expired",
                hint="an administrator makes a new one: `pilotage token create USER --out FILE`",
            )
        user, group = str(claims["sub"]), str(claims.get("grp", ""))
        lifetime = expires - float(claims.get("iat", expires - LIFETIME))
        properties, home = policy.properties(user, group), claims.get("own") is True
        if home:
            properties |= {ADMINISTRATOR}
        elif user not in policy.users or group not in policy.users[user].groups:
            raise Forbidden(f"the policy has no user {user} in group {group}", hint="ask an administrator")
        return Caller(user, group, properties, expires, lifetime, home)


def signing_key(path: Path) -> str:
    """The key of this home, created at the first start and readable by its owner only."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(48))
    return path.read_text().strip()


def fingerprint(key: str) -> str:
    """A short hash that identifies a key without revealing it."""
    return hashlib.sha256(f"pilotage signing key {key}".encode()).hexdigest()[:16]


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. The file is replaced atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.touch(mode=0o600)
        partial.write_text(text + "\n")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
