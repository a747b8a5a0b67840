"""Facts about an issuer, and a code that it has given."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class IssuerDocuments(msgspec.Struct):
    """The public keys of an issuer, as its JWKS has them, and its addresses for the code flow."""

    keys: list[dict[str, Any]]
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class CodeGrant(NamedTuple):
    """A code that a browser has brought from the issuer, with the secrets that belong to it (RFC 7636)."""

    code: str
    verifier: str
    redirect: str
    client: str
    secret_file: str
