"""The credential of the server's own for an ARC CE: a bearer token, or an X.509 certificate.

Files are read again at each call, so another program may renew them. A token goes to the CE alone, and never into a
message, a log or a batch job.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import jwt
from cryptography import x509

from pilotage.core.errors import Unreachable
from pilotage.core.policy.batch_systems.arc import ArcOptions

GRID_CAS = "/etc/grid-security/certificates"
"""Where grid software keeps the certificates of CAs."""

MOST_BYTES = 1_000_000
"""Bytes of a file with a credential that are read."""


class InvalidCredential(Unreachable):
    """There is no credential that could be used, so nothing was sent."""


@dataclass(frozen=True, slots=True)
class ArcCredential:
    """The credential for one call."""

    source: str
    """For messages, such as `the token in /run/token`."""
    token: str = field(default="", repr=False)
    certificate: str = ""
    """The file of a client certificate; empty: the token is the credential."""
    key: str = ""
    expiry: float = inf
    """In epoch seconds; infinite: it does not tell."""

    def require(self, now: float, left: float = 0.0) -> None:
        """`InvalidCredential` unless it is valid for `left` seconds more."""
        if self.expiry <= now:
            instant = datetime.fromtimestamp(self.expiry, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise InvalidCredential(f"{self.source} has expired on {instant}", hint="renew it")
        if self.expiry < now + left:
            raise InvalidCredential(
                f"{self.source} is valid for {self.expiry - now:.0f} s more, and `credential_left` asks for {left:g} s",
                hint="renew it",
            )


def find_credential(options: ArcOptions, environment: Mapping[str, str], uid: int) -> ArcCredential:
    """The credential that the policy names, else the token of the server's account (WLCG bearer token discovery)."""
    if options.token_file:
        return _token_of_file(options.token_file)
    if options.certificate:
        return _of_certificate(options.certificate, options.key or options.certificate)
    if token := environment.get("BEARER_TOKEN", "").strip():
        return _of_token(token, "the token in BEARER_TOKEN")
    if path := environment.get("BEARER_TOKEN_FILE", ""):
        return _token_of_file(path)
    folders = [environment.get("XDG_RUNTIME_DIR", ""), "/tmp"]  # noqa: S108 - WLCG's discovery names it
    for folder in filter(None, folders):
        path = f"{folder}/bt_u{uid}"
        if os.path.exists(path) and os.stat(path).st_uid in (uid, 0):
            return _token_of_file(path)
    raise InvalidCredential(
        "there is no credential for the CE", hint="set `token_file` or `certificate` in the section of the CE"
    )


def _token_of_file(path: str) -> ArcCredential:
    return _of_token(_read(path, "token").decode("utf-8", "replace").strip(), f"the token in {path}")


def _of_token(token: str, source: str) -> ArcCredential:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidCredential(f"{source} is none: it must be one word of ASCII characters")
    return ArcCredential(source, token=token, expiry=_expiry_of(token))


def _expiry_of(token: str) -> float:
    """The instant that a JWT names. It is not verified: the CE does that."""
    try:
        expiry = jwt.decode(token, options={"verify_signature": False, "verify_exp": False}).get("exp")
    except jwt.InvalidTokenError:
        return inf
    return float(expiry) if isinstance(expiry, int | float) else inf


def _of_certificate(path: str, key: str) -> ArcCredential:
    text = _read(path, "certificate")
    try:
        chain = x509.load_pem_x509_certificates(text)
        expiry = min(certificate.not_valid_after_utc.timestamp() for certificate in chain)
    except ValueError as error:
        raise InvalidCredential(f"{path} has no certificate that can be read: {error}") from None
    return ArcCredential(f"the certificate in {path}", certificate=path, key=key, expiry=expiry)


def _read(path: str, kind: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise InvalidCredential(f"the {kind} in {path} cannot be read: {error.strerror}") from None


def tls_context(
    options: ArcOptions, environment: Mapping[str, str], credential: ArcCredential
) -> ssl.SSLContext:
    """TLS with the accepted CAs, and the client certificate if it is the credential."""
    folder = environment.get("X509_CERT_DIR") or GRID_CAS
    try:
        if options.ca:
            is_folder = os.path.isdir(options.ca)
            context = ssl.create_default_context(
                cafile=None if is_folder else options.ca, capath=options.ca if is_folder else None
            )
        else:
            context = ssl.create_default_context()
            if os.path.isdir(folder):
                context.load_verify_locations(capath=folder)
    except (OSError, ssl.SSLError) as error:
        raise InvalidCredential(
            f"the CA certificates in {options.ca or folder} cannot be read: {error}"
        ) from None
    if credential.certificate:
        try:
            context.load_cert_chain(credential.certificate, credential.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidCredential(
                f"{credential.source} cannot be used with the key in {credential.key}: {error}",
                hint="`key` names the file of its private key",
            ) from None
    return context


def stamp_of_files(options: ArcOptions) -> tuple[tuple[str, int], ...]:
    """The files of the TLS context with the instants of their changes: another value asks for a new context."""
    stamps = []
    for path in filter(None, (options.certificate, options.key, options.ca)):
        try:
            stamps.append((path, Path(path).stat().st_mtime_ns))
        except OSError:
            stamps.append((path, 0))
    return tuple(stamps)
