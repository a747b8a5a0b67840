"""The documents of an issuer (OpenID Connect Discovery 1.0, RFC 7517), and the code flow's exchange at it."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from pilotage.core.errors import NotAuthenticated, Unreachable
from pilotage.core.policy.issuer_model import LOOPBACK
from pilotage.outside.identity.model import CodeGrant, IssuerDocuments
from pilotage.outside.one_deadline import one_deadline

DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT = 10.0
WHOLE = 20.0
"""Seconds for all answers of one call."""
LARGEST = 1_000_000
"""Bytes of a document."""


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class _Keys(msgspec.Struct):
    keys: list[dict[str, Any]]


class _TokenAnswer(msgspec.Struct):
    id_token: str = ""
    error: str = ""
    error_description: str = ""


def read_documents(url: str, ca_file: str, transport: httpx.BaseTransport | None = None) -> IssuerDocuments:
    """Read the documents of an issuer. Blocks for up to 20 s. Raises Unreachable with the reason.

    `ca_file`: CAs of its certificate; empty: the system's. `transport`: sends the requests, for tests.
    """
    with _client(url, ca_file, transport) as client:
        discovery = msgspec.json.decode(_get(client, url.rstrip("/") + DISCOVERY), type=_Discovery)
        if discovery.issuer != url:
            raise Unreachable(
                f"{url} calls itself {discovery.issuer[:200]}",
                hint="`url` must be the same, to the last slash",
            )
        for address in (discovery.jwks_uri, discovery.authorization_endpoint, discovery.token_endpoint):
            _need_safe(address)
        keys = msgspec.json.decode(_get(client, discovery.jwks_uri), type=_Keys).keys
    return IssuerDocuments(keys, discovery.authorization_endpoint, discovery.token_endpoint)


def redeem_code(url: str, ca_file: str, token_endpoint: str, grant: CodeGrant) -> str:
    """The ID token for a code. Blocks for up to 10 s. Raises Unreachable, NotAuthenticated if the code is refused."""
    form = {
        "grant_type": "authorization_code",
        "code": grant.code,
        "redirect_uri": grant.redirect,
        "code_verifier": grant.verifier,
        "client_id": grant.client,
    }
    headers = {"Accept": "application/json"}
    if grant.secret_file:
        pair = f"{quote(grant.client, safe='')}:{quote(_secret(grant.secret_file), safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        del form["client_id"]
    with _client(url, ca_file, None) as client:
        answer = client.post(token_endpoint, data=form, headers=headers)
        tokens = msgspec.json.decode(answer.content[:LARGEST], type=_TokenAnswer)
    if answer.is_error or not tokens.id_token:
        reason = (
            tokens.error_description or tokens.error or f"status {answer.status_code}, without an ID token"
        )
        raise NotAuthenticated(f"the issuer refuses this sign-in: {reason[:300]}", hint="sign in again")
    return tokens.id_token


def _secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Unreachable(f"the secret of the client cannot be read: {path}: {error}") from None


@contextmanager
def _client(url: str, ca_file: str, transport: httpx.BaseTransport | None) -> Iterator[httpx.Client]:
    """A client for one issuer. Trouble of the network and unreadable documents become errors of ours."""
    try:
        trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else True
        with one_deadline(WHOLE) as deadline:

            def trace(request: httpx.Request) -> None:
                request.extensions = {**request.extensions, "trace": deadline.on_event}

            with httpx.Client(
                timeout=TIMEOUT,
                verify=trust,
                transport=transport,
                trust_env=True,
                event_hooks={"request": [trace]},
            ) as client:
                yield client
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
    """Raise Unreachable for an address that would send secrets without TLS, or that is none."""
    try:
        # urlsplit leaves out line ends, which would end a header that has the address.
        parts = urlsplit(url if url.isascii() and url.isprintable() and " " not in url else "//[")
    except ValueError:
        raise Unreachable(f"the issuer names an address that is none: {url[:200]!r}") from None
    if url and parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise Unreachable(f"the issuer names the address {url[:200]}, without TLS")
