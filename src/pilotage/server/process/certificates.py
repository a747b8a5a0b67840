"""The server's certificates in its home: made, shown, replaced.

secrets/certificate.pem           private key and certificate in use (mode 600)
secrets/next-certificate.pem      the same for the certificate that will replace it
secrets/previous-certificate.pem  the same for the replaced certificate, for pilots and clients that know no other
secrets/certificate-trust         which CAs clients and pilots accept instead of pinned certificates, if any

Key and certificate are one file, so that they are replaced together.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.private_files import write_private
from pilotage.wire.tls import fingerprint_of

LIFETIME = datetime.timedelta(days=3650)
"""Pinned certificates do not expire; others check it."""
CLOCK_TOLERANCE = datetime.timedelta(days=1)
PREVIOUS_KEPT = datetime.timedelta(days=30)
"""How long the server still proves itself by a replaced certificate. Pilots may wait as long in a batch system."""
SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The public facts of a certificate."""

    fingerprint: str
    """SHA-256 of the DER encoding."""
    names: tuple[str, ...]
    issuer: str
    starts: float
    expires: float

    def matches(self, host: str) -> bool:
        """Whether a client that checks names accepts the certificate for a host name or address."""
        host = host.lower().rstrip(".")
        _, _, domain = host.partition(".")
        wildcard = f"*.{domain}" if domain and not _is_address(host) else host
        return any(name.lower().rstrip(".") in (host, wildcard) for name in self.names)


class CertificateFiles:
    """The certificates of one home."""

    def __init__(self, secrets: Path) -> None:
        self.current = secrets / "certificate.pem"
        self.next = secrets / "next-certificate.pem"
        self.previous = secrets / "previous-certificate.pem"
        self._trust = secrets / "certificate-trust"

    def make_if_missing(self, names: Iterable[str], now: float) -> None:
        if not self.current.exists():
            write_private(self.current, make_certificate(names, now))

    def existing(self) -> tuple[Path, ...]:
        """The files of the certificate in use, the next and the previous one, as far as there are any."""
        return tuple(path for path in (self.current, self.next, self.previous) if path.exists())

    def read(self) -> tuple[Certificate, ...]:
        """The certificates of `existing`."""
        return tuple(read_certificate(path) for path in self.existing())

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

    def activate(self, now: float) -> Certificate:
        """Put the next certificate into use, and keep the replaced one."""
        if not self.next.exists():
            raise Conflict(
                "there is no next certificate", hint="make one first: `pilotage server certificate rotate`"
            )
        self._keep_previous(now)
        self.next.replace(self.current)
        return read_certificate(self.current)

    def use(
        self, certificate: Path, key: Path, trust: str, now: float, host: str = "", *, replace: bool = False
    ) -> Certificate:
        """Put a certificate of somebody else into use, with its chain. Raises InvalidInput if it cannot be used.

        `host`: the server's name for clients, checked if a CA vouches for it. `replace`: forget the previous one.
        """
        try:
            _check_private(key)
            text = key.read_text() if key == certificate else key.read_text() + "\n" + certificate.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the certificate or its key cannot be read: {error}") from None
        trial = self.current.with_name("certificate-on-trial.pem")
        write_private(trial, text)
        try:
            make_server_context(trial)
            facts = read_certificate(trial)
            _check_usable(facts, now, host if trust else "")
            if replace:
                self.forget_previous()
            else:
                self._keep_previous(now)
            trial.replace(self.current)
        finally:
            trial.unlink(missing_ok=True)
        self.next.unlink(missing_ok=True)
        write_private(self._trust, trust)
        return facts

    def forget_previous(self, older_than: float | None = None) -> bool:
        """Remove the previous certificate, or only if it was replaced before `older_than`; whether it is removed."""
        try:
            if older_than is not None and self.previous.stat().st_mtime >= older_than:
                return False
            self.previous.unlink()
        except FileNotFoundError:
            return False
        return True

    def _keep_previous(self, now: float) -> None:
        """Copy the certificate in use. The time of the copy is that of its replacement."""
        if self.current.exists():
            write_private(self.previous, self.current.read_text())
            os.utime(self.previous, (now, now))

    def state(self) -> tuple[object, ...]:
        """Differs when a file has been replaced."""
        return tuple(_identity(path) for path in (self.current, self.next, self.previous, self._trust))


def _check_private(key: Path) -> None:
    """Raise InvalidInput if other accounts can read a private key."""
    if key.stat().st_mode & 0o077:
        raise InvalidInput(
            f"other accounts can read the private key {key}",
            hint=f"run `chmod 600 {key}`; better make a new key",
        )


def _check_usable(facts: Certificate, now: float, host: str) -> None:
    """Raise InvalidInput if clients would refuse the certificate. `host`: the server's name; "" accepts any."""
    if not facts.starts <= now < facts.expires:
        first, last = (
            datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
            for at in (facts.starts, facts.expires)
        )
        raise InvalidInput(
            f"the certificate is valid from {first} to {last}, not now",
            hint="ask its CA for a new one, and check the clock of this machine",
        )
    if host and not facts.matches(host):
        raise InvalidInput(
            f"the certificate is not for {host}, but for {', '.join(facts.names) or 'no name'}",
            hint="start the server with --listen NAME or --pilot-server https://NAME:PORT of a name in it",
        )


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


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
        certificate.not_valid_before_utc.timestamp(),
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
