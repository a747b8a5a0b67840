"""TLS to a server: checks of pinned certificates, and refusals in words. Only addresses with https need it."""

from __future__ import annotations

import hashlib
import ssl
from typing import Any, Optional

from .server_trust import ServerTrust, name_of_pin

_VALIDITY_CODES = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


class CertificateMismatch(ssl.SSLCertVerificationError):
    """The server has another certificate than the pinned ones. Nothing was sent to it."""


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


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


def make_context(trust: ServerTrust, asked: str) -> ssl.SSLContext:
    """See `ServerTrust.make_context`."""
    if trust.fingerprints:
        context: ssl.SSLContext = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.trust, context.asked = trust, asked  # type: ignore[attr-defined]
    else:
        context = ssl.create_default_context(cafile=trust.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


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
            fingerprint = fingerprint_of(wrapped.getpeercert(binary_form=True) or b"")
            if fingerprint not in self.trust.fingerprints:
                raise CertificateMismatch(
                    f"its certificate has the fingerprint {fingerprint}, which is not pinned"
                )
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        raise ssl.SSLError(
            "a pinned server cannot be reached through a proxy that is itself reached over TLS"
        )
