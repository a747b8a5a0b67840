"""The server's certificates in its home: made, shown, replaced.

secrets/certificate.pem       private key and certificate in use (mode 600)
secrets/next-certificate.pem  the same for the certificate that will replace it
secrets/certificate-trust     which CAs clients and pilots accept instead of pinned certificates, if any

Key and certificate are one file, so that they are replaced together.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.tokens import write_private
from pilotage.wire.server_trust import fingerprint_of

LIFETIME = datetime.timedelta(days=3650)
"""Pinned certificates do not expire; others check it."""
CLOCK_TOLERANCE = datetime.timedelta(days=1)
SYSTEM = "system"
LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """The public facts of a certificate."""

    fingerprint: str
    """SHA-256 of the DER encoding."""
    names: tuple[str, ...]
    issuer: str
    expires: float


class CertificateFiles:
    """The certificates of one home."""

    def __init__(self, secrets: Path) -> None:
        self.current = secrets / "certificate.pem"
        self.next = secrets / "next-certificate.pem"
        self._trust = secrets / "certificate-trust"

    def make_if_missing(self, names: Iterable[str], now: float) -> None:
        if not self.current.exists():
            write_private(self.current, make_certificate(names, now))

    def read(self) -> tuple[Certificate, ...]:
        """The certificate in use, and the next one if there is one."""
        return tuple(read_certificate(path) for path in (self.current, self.next) if path.exists())

    def read_trust(self) -> str:
        """Empty: clients and pilots pin; "system": they trust the system's CAs; else the path of a CA file."""
        return self._trust.read_text().strip() if self._trust.exists() else ""

    def rotate(self, now: float) -> Certificate:
        """Make the next certificate, for the names of the one in use. Raises Conflict if there is one."""
        if self.next.exists():
            raise Conflict(
                "the next certificate is made already", hint="`pilotage server certificate rotate --activate`"
            )
        write_private(self.next, make_certificate(read_certificate(self.current).names, now))
        return read_certificate(self.next)

    def activate(self) -> Certificate:
        """Put the next certificate into use. The last one is gone."""
        if not self.next.exists():
            raise Conflict(
                "there is no next certificate", hint="make one first: `pilotage server certificate rotate`"
            )
        self.next.replace(self.current)
        return read_certificate(self.current)

    def use(self, certificate: Path, key: Path, trust: str) -> Certificate:
        """Put a certificate of somebody else into use, with its chain. Raises InvalidInput if it cannot be used."""
        try:
            text = key.read_text() + "\n" + certificate.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the certificate or its key cannot be read: {error}") from None
        trial = self.current.with_name("certificate-on-trial.pem")
        write_private(trial, text)
        try:
            make_server_context(trial)
            facts = read_certificate(trial)
            trial.replace(self.current)
        finally:
            trial.unlink(missing_ok=True)
        self.next.unlink(missing_ok=True)
        write_private(self._trust, trust)
        return facts

    def state(self) -> tuple[object, ...]:
        """Differs when a file has been replaced."""
        return tuple(_identity(path) for path in (self.current, self.next, self._trust))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def make_certificate(names: Iterable[str], now: float) -> str:
    """A new private key (P-256) and a self-signed certificate for these host names and addresses, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Pilotage server")])
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - CLOCK_TOLERANCE)
        .not_valid_after(at + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(serialization.Encoding.PEM)).decode()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def read_certificate(path: Path) -> Certificate:
    """The first certificate of a PEM file. Raises InvalidInput if there is none."""
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError, IndexError) as error:
        raise InvalidInput(f"{path} holds no certificate that can be read: {error}") from None
    names: tuple[str, ...] = ()
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(
            str(name.value) for name in alternatives if isinstance(name, x509.DNSName | x509.IPAddress)
        )
    except (x509.ExtensionNotFound, ValueError):
        pass
    return Certificate(
        fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)),
        names,
        certificate.issuer.rfc4514_string(),
        certificate.not_valid_after_utc.timestamp(),
    )


def make_server_context(path: Path) -> ssl.SSLContext:
    """The settings of TLS for a key and certificate. Raises InvalidInput if they do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    load_chain(context, path)
    return context


def load_chain(context: ssl.SSLContext, path: Path) -> None:
    """Use the key and certificate of a file for new connections. Raises InvalidInput if it cannot be used."""
    try:
        # An encrypted key would ask for its password on the terminal.
        context.load_cert_chain(path, password="")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"the certificate and its private key cannot be used: {error}",
            hint="PEM files, the key without a password",
        ) from None
