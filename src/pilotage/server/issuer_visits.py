"""Browsers that have gone to an issuer to sign in, and are expected back with a code (RFC 6749, RFC 7636).

Each visit lies in a sealed cookie of its browser: nobody can sign another person's browser in. The server keeps none,
so no number of begun visits pushes out another one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec

from pilotage.core.errors import NotAuthenticated
from pilotage.core.secret_source import SecretSource

LIFETIME = 600.0
"""Seconds in which the browser must come back."""
LONGEST_BACK = 1000
"""Characters of the page to show afterwards: a cookie has 4,096 bytes at most."""


class IssuerVisit(msgspec.Struct, frozen=True):
    """One browser at an issuer."""

    issuer: str
    """The name of the issuer in the policy."""
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
    """Seals and opens the visits of one server. A restart ends them."""

    def __init__(self) -> None:
        self._key = b""

    def begin(self, issuer: str, back: str, now: float, secrets: SecretSource) -> tuple[IssuerVisit, str]:
        """A new visit, and the cookie for its browser."""
        self._key = self._key or secrets.token_urlsafe(32).encode()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        kept = back if len(back) <= LONGEST_BACK else ""
        visit = IssuerVisit(issuer, state, nonce, verifier, kept, now + LIFETIME)
        content = base64.urlsafe_b64encode(msgspec.json.encode(visit)).decode()
        return visit, f"{content}.{self._seal(content)}"

    def finish(self, state: str, cookie: str, now: float) -> IssuerVisit:
        """The visit of a browser that comes back with this state. Raises NotAuthenticated if it is not its own."""
        content, _, seal = cookie.partition(".")
        if self._key and hmac.compare_digest(seal.encode(errors="replace"), self._seal(content).encode()):
            visit = msgspec.json.decode(base64.urlsafe_b64decode(content), type=IssuerVisit)
            if hmac.compare_digest(state.encode(errors="replace"), visit.state.encode()):
                if now >= visit.expires:
                    raise NotAuthenticated("this sign-in took longer than ten minutes", hint="begin it again")
                return visit
        raise NotAuthenticated("this browser has not begun this sign-in", hint="begin it again here")

    def _seal(self, content: str) -> str:
        return hmac.new(self._key, content.encode(errors="replace"), hashlib.sha256).hexdigest()
