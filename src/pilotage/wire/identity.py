"""Messages of tokens and identities. Rules of bodies, instants and errors: wire/__init__.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from pilotage.wire.call import ADMINISTRATORS, ANYBODY, PERSON, ApiCall, NoRequest, Nothing
from pilotage.wire.limits import MAX_INT64, Bounds, Name, Seconds
from pilotage.wire.queries import PageQuery

GROUP_HEADER = "pilotage-group"
"""The header with the group in which a program works that sends a token of a trusted issuer."""


@dataclass
class Identity:
    user: str
    group: str
    properties: List[str]
    expires: float
    server_version: str = ""
    instance: str = ""
    servers: List[str] = field(default_factory=list)
    """Addresses of the other servers of the pool."""


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
    id: int = 0
    """The number by which the token is listed and revoked; 0: it has none."""


@dataclass
class TokenSummary:
    """A token that an administrator has made. Renewals keep its number."""

    id: int
    user: str
    group: str
    issued: float
    expires: float
    issued_by: str
    revoked: Optional[float] = None
    revoked_by: str = ""


@dataclass
class TokensPage:
    """Newest first."""

    tokens: List[TokenSummary] = field(default_factory=list)
    next: Optional[int] = None
    """Give it as `after` for the next page; None: this was the last."""


@dataclass
class RevokeRequest:
    """Exactly one of the fields is given. Users may revoke their own tokens, administrators all tokens."""

    id: Annotated[int, Bounds(low=0, high=MAX_INT64)] = 0
    user: Name = ""
    """All tokens of this user that were issued until now."""
    pilot: Annotated[int, Bounds(low=0, high=MAX_INT64)] = 0
    """The token of this pilot: the pilot ends, and its jobs wait again."""


@dataclass
class RevokeResponse:
    tokens: int
    """The number of listed tokens that were revoked."""


@dataclass
class RotateKeyRequest:
    grace: Seconds = 86400.0
    """Seconds for which tokens of earlier keys are still accepted."""


@dataclass
class RotateKeyResponse:
    key: int
    """The number of the new key."""
    accepted_until: float
    """When tokens that were signed with earlier keys are refused."""


WHOAMI = ApiCall("GET", "/v1/whoami", NoRequest, Identity, PERSON)
CREATE_TOKEN = ApiCall("POST", "/v1/tokens", TokenRequest, TokenResponse, ADMINISTRATORS)
LIST_TOKENS = ApiCall("GET", "/v1/tokens", PageQuery, TokensPage, PERSON)
# Everybody revokes and renews their own.
REVOKE_TOKENS = ApiCall("POST", "/v1/tokens/revoke", RevokeRequest, RevokeResponse, PERSON)
REFRESH_TOKEN = ApiCall("POST", "/v1/tokens/refresh", NoRequest, TokenResponse, PERSON)
ROTATE_KEY = ApiCall("POST", "/v1/tokens/rotate-key", RotateKeyRequest, RotateKeyResponse, ADMINISTRATORS)
RENEW_HOME_TOKEN = ApiCall(
    "POST", "/v1/tokens/home", NoRequest, Nothing, ANYBODY, status=204, repeatable=True
)
