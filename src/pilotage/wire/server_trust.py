"""Certificates that a client or pilot accepts from its server: pinned ones, or any from a CA that it trusts.

A pinned certificate is accepted by the SHA-256 of its DER encoding alone: issuer, names and dates do not matter. The
server announces its fingerprints in a header of each answer, so that its certificate can be replaced. A client that
has missed a replacement asks for the certificate of its pin by name, as long as the server keeps that certificate.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from typing import Any, Iterable, Optional, Tuple

CERTIFICATES_HEADER = "Pilotage-Certificates"
"""Header of an answer: the fingerprints that the server has or will have, separated by commas."""
SERVERS_HEADER = "Pilotage-Servers"
"""Header of an answer: the addresses for pilots of all servers of the pool, separated by commas."""
MAX_PINS = 16
_VALIDITY_CODES = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""
_FINGERPRINT = re.compile("[0-9a-f]{64}")


def name_of_pin(fingerprint: str) -> str:
    """The server name (SNI) by which a client asks for the certificate with this fingerprint."""
    return f"{fingerprint[:32]}.pin.pilotage.invalid"


class CertificateMismatch(ssl.SSLCertVerificationError):
    """The server has another certificate than the pinned ones. Nothing was sent to it."""


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def parse_fingerprint(text: str) -> str:
    """A fingerprint in lower case without colons. Raises ValueError if it is none."""
    fingerprint = text.replace(":", "").strip().lower()
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError(f"not a SHA-256 fingerprint of 64 hexadecimal digits: {text[:100]!r}")
    return fingerprint


def split_pinned_url(url: str) -> Tuple[str, Tuple[str, ...]]:
    """(address, fingerprints) of `URL#sha256=FINGERPRINT[,FINGERPRINT]`. Raises ValueError for another fragment."""
    address, hash_sign, fragment = url.partition("#")
    if not hash_sign:
        return address, ()
    name, _, values = fragment.partition("=")
    if name != "sha256":
        raise ValueError(f"not #sha256=FINGERPRINT: {fragment[:100]!r}")
    return address, tuple(parse_fingerprint(value) for value in values.split(","))


def refused_certificate(error: Optional[BaseException]) -> Optional[ssl.SSLCertVerificationError]:
    """The refusal of a server's certificate that has caused an error, if one has."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def describe_refusal(error: ssl.SSLCertVerificationError, now: str) -> str:
    """The fault of a server's certificate, and its remedy. `now`: the time by the clock of this machine."""
    if isinstance(error, CertificateMismatch):
        return (
            f"it is another server, or has a new certificate: {error.args[0]}; nothing was sent to it;"
            " an administrator of the server compares `pilotage server certificate show`"
        )
    reason = error.verify_message or str(error)
    if error.verify_code in _VALIDITY_CODES:
        return (
            f"its certificate is not accepted: {reason}; the clock of this machine shows {now}:"
            " set the clock if it is wrong, otherwise the server needs a new certificate"
        )
    return f"its certificate is not accepted: {reason}; pin it, or name the file of its CA"


class ServerTrust:
    """The certificates accepted from one server. Connections of several threads may share it."""

    def __init__(self, fingerprints: Iterable[str] = (), ca_file: str = "") -> None:
        """Without fingerprints a CA must have issued the certificate for the server's name.

        `ca_file`: PEM file of accepted CAs; empty: the system's CAs.
        """
        self.fingerprints = tuple(parse_fingerprint(fingerprint) for fingerprint in fingerprints)
        self.ca_file = ca_file

    def make_context(self, asked: str = "") -> ssl.SSLContext:
        """A context for new connections. Its `wrap_socket` raises before anything can be sent to another server.

        `asked`: a pinned fingerprint, to ask for its certificate.
        """
        if self.fingerprints:
            context: ssl.SSLContext = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.trust, context.asked = self, asked  # type: ignore[attr-defined]
        else:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def check(self, certificate: bytes) -> None:
        """Raise CertificateMismatch unless this certificate, in DER, is pinned."""
        fingerprint = fingerprint_of(certificate)
        if fingerprint not in self.fingerprints:
            raise CertificateMismatch(
                f"its certificate has the fingerprint {fingerprint}, which is not pinned"
            )

    def learn(self, announced: str) -> bool:
        """Replace the pins by the fingerprints that the server announces over a trusted connection; True if changed.

        An announcement without any of the present pins comes from a server behind a proxy, and is ignored.
        """
        try:
            fingerprints = tuple(parse_fingerprint(text) for text in announced.split(",")[:MAX_PINS])
        except ValueError:
            return False
        if fingerprints == self.fingerprints or not set(fingerprints) & set(self.fingerprints):
            return False
        self.fingerprints = fingerprints
        return True


class PinnedContext(ssl.SSLContext):
    """Checks the certificate's fingerprint at the end of the handshake."""

    trust: ServerTrust
    asked: str
    """The fingerprint of the certificate to ask for; empty: the certificate in use."""

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        if self.asked:
            options["server_hostname"] = name_of_pin(self.asked)
        wrapped = super().wrap_socket(*arguments, **options)
        try:
            self.trust.check(wrapped.getpeercert(binary_form=True) or b"")
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        raise ssl.SSLError(
            "a pinned server cannot be reached through a proxy that is itself reached over TLS"
        )
