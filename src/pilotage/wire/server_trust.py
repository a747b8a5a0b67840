"""Certificates that a client or pilot accepts from its server: pinned ones, or any from a CA that it trusts.

A pinned certificate is accepted by the SHA-256 of its DER encoding alone: issuer, names and dates do not matter. The
server announces its fingerprints in a header of each answer, so that its certificate can be replaced. A client that
has missed a replacement asks for the certificate of its pin by name, as long as the server keeps that certificate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterable, Tuple

if TYPE_CHECKING:
    import ssl

CERTIFICATES_HEADER = "Pilotage-Certificates"
"""Header of an answer: the fingerprints that the server has or will have, separated by commas."""
SERVERS_HEADER = "Pilotage-Servers"
"""Header of an answer: the addresses for pilots of all servers of the pool, separated by commas."""
MAX_PINS = 16
_FINGERPRINT = re.compile("[0-9a-f]{64}")


def name_of_pin(fingerprint: str) -> str:
    """The server name (SNI) by which a client asks for the certificate with this fingerprint."""
    return f"{fingerprint[:32]}.pin.pilotage.invalid"


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
        from .tls import make_context

        return make_context(self, asked)

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
