"""A certificate authority of the tests' own, in a folder as grid software reads it, and the certificates it issues."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path
    subject: str
    """As grid software writes it: /O=Pilotage/CN=NAME."""


class TestAuthority:
    """Issues certificates. Its own lies in `folder`, under the names that OpenSSL looks for."""

    __test__ = False

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        folder.mkdir()
        self._key = _new_key()
        self._name = _subject(name)
        self.file = folder / "ca.pem"
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        command = ["openssl", "x509", "-noout", "-subject_hash", "-in", str(self.file)]
        hashed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        (folder / f"{hashed}.0").symlink_to("ca.pem")
        (folder / f"{hashed}.signing_policy").write_text(
            f"access_id_CA X509 '/O=Pilotage/CN={name}'\n"
            "pos_rights globus CA:sign\n"
            "cond_subjects globus '\"/O=Pilotage/*\"'\n"
        )

    def issue(
        self, name: str, folder: Path, *, server: bool = False, lifetime: timedelta = timedelta(days=7)
    ) -> IssuedCertificate:
        """A certificate with this common name. `server`: for the host `name` and for 127.0.0.1."""
        folder.mkdir()
        key = _new_key()
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_subject(name), self._name, key.public_key(), lifetime).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if server:
            names = [x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        issued = IssuedCertificate(folder / "cert.pem", folder / "key.pem", f"/O=Pilotage/CN={name}")
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        issued.key.chmod(0o400)
        return issued


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Pilotage"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    """`lifetime` may be negative: the certificate has expired then."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + lifetime)
    )
