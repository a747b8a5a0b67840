"""The token of a pilot's program."""

from __future__ import annotations

import base64
import hashlib
import hmac


def program_token(secret: str, index: int, nonce: str) -> str:
    """The token of the program that has enrolled with this secret, index and nonce.

    Nothing else makes it, so a repeated answer has the same token. It has the form of `token_urlsafe(32)`, by which
    records find it.
    """
    digest = hmac.new(secret.encode(), f"{index}\n{nonce}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
