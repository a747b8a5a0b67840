"""Presigned addresses of S3 services: Signature Version 4 of AWS, in the query of the address."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


class S3Credentials(NamedTuple):
    """A key of an S3 service."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"S3Credentials({self.access_key!r})"


class S3Request(NamedTuple):
    """A request before it is signed."""

    method: str
    address: str
    """Without a query. Its path is quoted."""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Headers that the service requires. Their names are in small letters."""


def presigned(
    request: S3Request, credentials: S3Credentials, region: str, now: float, lifetime: float
) -> str:
    """The address that anybody can use for the request, from `now` on for `lifetime` seconds."""
    url = urlsplit(request.address)
    headers = sorted({**request.headers, "host": url.netloc}.items())
    names = ";".join(name for name, _ in headers)
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    signed = {
        **request.query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(int(lifetime)),
        "X-Amz-SignedHeaders": names,
    }
    if credentials.session_token:
        signed["X-Amz-Security-Token"] = credentials.session_token
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(signed.items()))
    lines = "".join(f"{name}:{value}\n" for name, value in headers)
    canonical = "\n".join((request.method, url.path, query, lines, names, _UNSIGNED))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, "\n".join((ALGORITHM, at, scope, digest))).hex()
    return f"{request.address}?{query}&X-Amz-Signature={signature}"


def quoted_path(path: str) -> str:
    """The path of an object in its address. AWS quotes each byte but these, and no slash."""
    return quote(path, safe="/~")


def _quoted(text: str) -> str:
    return quote(text, safe="~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
