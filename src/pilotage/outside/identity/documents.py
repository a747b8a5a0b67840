"""The documents of an issuer: its discovery document and its keys (OpenID Connect Discovery 1.0, RFC 7517)."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from pilotage.core.errors import Unreachable
from pilotage.core.policy.issuer_model import LOOPBACK

DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT = 10.0
LARGEST = 1_000_000
"""Bytes of a document."""


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _Keys(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_keys(url: str, ca_file: str, transport: httpx.BaseTransport | None = None) -> list[dict[str, Any]]:
    """The public keys of an issuer, as its JWKS has them. Blocks for up to 20 s. Raises Unreachable with the reason.

    `ca_file`: CAs of its certificate; empty: the system's. `transport`: sends the requests, for tests.
    """
    try:
        trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else True
        with httpx.Client(timeout=TIMEOUT, verify=trust, transport=transport, trust_env=True) as client:
            discovery = msgspec.json.decode(_get(client, url.rstrip("/") + DISCOVERY), type=_Discovery)
            if discovery.issuer != url:
                raise Unreachable(
                    f"{url} calls itself {discovery.issuer[:200]}",
                    hint="`url` must be the same, to the last slash",
                )
            _need_safe(discovery.jwks_uri)
            return msgspec.json.decode(_get(client, discovery.jwks_uri), type=_Keys).keys
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Unreachable(f"{url} does not answer: {error or type(error).__name__}") from None
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{url} answers with another document than expected: {error}") from None


def _get(client: httpx.Client, url: str) -> bytes:
    with client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
        if answer.status_code != httpx.codes.OK:
            raise Unreachable(f"{url} answers with status {answer.status_code}")
        content = b""
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > LARGEST:
                raise Unreachable(f"{url} answers with more than {LARGEST:,} bytes")
    return content


def _need_safe(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise Unreachable(f"the keys of the issuer are at {url[:200]}, without TLS")
