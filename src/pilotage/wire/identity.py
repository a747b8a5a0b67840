"""Messages of tokens and identities. Rules of bodies, instants and errors: wire/__init__.py.

GET    /v1/whoami                          Identity
POST   /v1/tokens                          TokenRequest → TokenResponse (administrators)
POST   /v1/tokens/refresh                  → TokenResponse with the identity and lifetime of the current token
POST   /v1/tokens/home                     → 204, without a token: rewrite the token file in the server's home
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from pilotage.wire.limits import Name, Seconds


@dataclass
class Identity:
    user: str
    group: str
    properties: List[str]
    expires: float
    server_version: str = ""
    instance: str = ""


@dataclass
class TokenRequest:
    user: Name
    group: Name = ""
    """Empty: the user's first group in the policy."""
    lifetime: Seconds = 43200.0


@dataclass
class TokenResponse:
    token: str
    expires: float
    user: str
    group: str
