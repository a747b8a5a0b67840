"""Browsers that have gone to an issuer to sign in, and are expected back with a code (RFC 6749, RFC 7636).

All of them are in memory. Each belongs to one browser by a cookie: nobody can sign another person's browser in.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from pilotage.core.errors import NotAuthenticated
from pilotage.core.secret_source import SecretSource

LIFETIME = 600.0
"""Seconds in which the browser must come back."""
MOST = 1000
"""Browsers that are expected back; a further one replaces the first."""


@dataclass(frozen=True, slots=True)
class IssuerVisit:
    """One browser at an issuer."""

    issuer: str
    """The name of the issuer in the policy."""
    browser: str
    """The value of the cookie."""
    state: str
    nonce: str
    """Stands in the ID token that belongs to this visit."""
    verifier: str
    back: str
    """The page to show afterwards."""
    expires: float

    @property
    def challenge(self) -> str:
        """The digest of the verifier, which the issuer compares (method S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class IssuerVisits:
    """The visits of one server. For the thread of the event loop."""

    def __init__(self) -> None:
        self._visits: dict[str, IssuerVisit] = {}
        """The visits by the digest of the state: the time of a look-up tells nothing about it."""

    def begin(self, issuer: str, back: str, now: float, secrets: SecretSource) -> IssuerVisit:
        browser, state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(4))
        visit = IssuerVisit(issuer, browser, state, nonce, verifier, back, now + LIFETIME)
        while len(self._visits) >= MOST:
            del self._visits[next(iter(self._visits))]
        self._visits[_digest(state)] = visit
        return visit

    def finish(self, state: str, browser: str, now: float) -> IssuerVisit:
        """The visit that has this state. It counts once, for its own browser. Raises NotAuthenticated."""
        visit = self._visits.get(_digest(state))
        if visit is None or _digest(visit.browser) != _digest(browser):
            raise NotAuthenticated("this browser has not begun this sign-in", hint="begin it again here")
        del self._visits[_digest(state)]
        if now >= visit.expires:
            raise NotAuthenticated("this sign-in took longer than ten minutes", hint="begin it again")
        return visit


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
