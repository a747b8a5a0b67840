"""An issuer of tokens that a test plays: it has keys, and makes good and forged tokens."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pilotage.outside.identity.model import IssuerDocuments

URL = "https://iam.example.org/"
CLIENT = "cli"
AUDIENCE = "https://pilotage.example.org"


class PlayedIssuer:
    """Keys by number; `documents` is what the issuer publishes."""

    def __init__(self, url: str = URL) -> None:
        self.url = url
        self.reads = 0
        self.failure: Exception | None = None
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.documents: list[dict[str, Any]] = [
            {
                **json.loads(RSAAlgorithm.to_jwk(self.rsa.public_key())),
                "kid": "rsa",
                "use": "sig",
                "alg": "RS256",
            },
            {
                **json.loads(ECAlgorithm.to_jwk(self.ec.public_key())),
                "kid": "ec",
                "use": "sig",
                "alg": "ES256",
            },
        ]

    def read_documents(self, url: str, ca_file: str) -> IssuerDocuments:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return IssuerDocuments(self.documents, f"{self.url}/authorize", f"{self.url}/token")

    def token(self, now: float, *, kid: str = "rsa", **changes: Any) -> str:
        """A token of alice; `changes`: of its claims, None: without this one."""
        claims = {
            "iss": self.url,
            "sub": "7c1b",
            "aud": AUDIENCE,
            "iat": int(now),
            "exp": int(now) + 600,
            "preferred_username": "alice",
            "wlcg.groups": ["/exp/analysis", "/exp"],
        }
        kept = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        if kid == "ec":
            return jwt.encode(kept, self.ec, "ES256", {"kid": kid})
        return jwt.encode(kept, self.rsa, "RS256", {"kid": kid})
