"""Messages about trusted issuers, by which people sign in without a token that an administrator has made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, List, Optional

from .call import ANYBODY, PERSON, ApiCall, NoRequest
from .identity import TokenResponse
from .limits import Bounds, Name


@dataclass
class IssuerSummary:
    """A table `issuers.NAME` of the policy, with the facts by which a program signs in there."""

    name: str
    url: str
    client: str = ""
    """The id of the public client for the device code; empty: nobody signs in there by the command line."""
    scopes: List[str] = field(default_factory=list)
    audience: List[str] = field(default_factory=list)
    problem: str = ""
    """Why its keys cannot be read; empty: they can, or nobody has tried."""
    since: Optional[float] = None
    """Since when it answers, or has this problem; None: nobody has tried."""


@dataclass
class TokenExchange:
    """A token of a trusted issuer, for a token of this server."""

    token: Annotated[str, Bounds(shortest=1, longest=16_000)]
    group: Name = ""
    """Empty: the first group that the issuer and the policy both give to the user."""


LIST_ISSUERS = ApiCall("GET", "/v1/issuers", NoRequest, List[IssuerSummary], ANYBODY)
TEST_ISSUER = ApiCall("POST", "/v1/issuers/{issuer}/test", NoRequest, IssuerSummary, PERSON, repeatable=True)
EXCHANGE_TOKEN = ApiCall(
    "POST", "/v1/tokens/exchange", TokenExchange, TokenResponse, ANYBODY, repeatable=True
)
