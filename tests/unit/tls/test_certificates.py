"""The server's certificates: made once for its owner alone, rotated in two steps, replaced by others."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.http.addresses import is_loopback, make_url, parse_listen
from pilotage.server.process.certificates import SYSTEM, CertificateFiles, make_certificate
from pilotage.server.process.tls import ServerTls
from pilotage.wire.server_trust import fingerprint_of

NOW = 1_800_000_000.0
NAMES = ("node.example.org", "192.0.2.7", "2001:db8::7")


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    made = CertificateFiles(tmp_path / "secrets")
    made.make_if_missing(NAMES, NOW)
    return made


def test_a_certificate_is_made_once_and_for_its_owner_only(files: CertificateFiles) -> None:
    before = files.current.read_bytes()
    files.make_if_missing(["other"], NOW)
    assert files.current.read_bytes() == before
    assert files.current.stat().st_mode & 0o777 == 0o600


def test_it_has_the_names_and_openssl_agrees_on_its_fingerprint(files: CertificateFiles) -> None:
    (facts,) = files.read()
    assert facts.names == NAMES
    assert facts.expires > NOW + 3600 * 86400
    pem = files.current.read_text()
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])
    assert fingerprint_of(der) == facts.fingerprint
    shown = subprocess.run(
        ["openssl", "x509", "-in", files.current, "-noout", "-text", "-fingerprint", "-sha256"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert facts.fingerprint == shown.rpartition("ingerprint=")[2].strip().replace(":", "").lower()
    assert "prime256v1" in shown


def test_a_rotation_has_two_steps(files: CertificateFiles) -> None:
    (old,) = files.read()
    with pytest.raises(Conflict, match="no next"):
        files.activate()
    new = files.rotate(NOW)
    assert files.read() == (old, new)
    assert new.names == old.names
    assert files.next.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="already"):
        files.rotate(NOW)
    assert files.activate() == new
    assert files.read() == (new,)


def test_a_running_server_takes_changed_files_up(files: CertificateFiles) -> None:
    tls, changes = ServerTls(files, NAMES, NOW), list[Sequence[str]]()

    def refresh() -> None:
        tls.refresh(lambda: changes.append(tls.fingerprints))

    (old,) = files.read()
    refresh()
    new = files.rotate(NOW)
    refresh()
    files.activate()
    refresh()
    refresh()
    assert changes == [(old.fingerprint, new.fingerprint), (new.fingerprint,)]


def test_a_damaged_file_changes_nothing(files: CertificateFiles, caplog: pytest.LogCaptureFixture) -> None:
    tls = ServerTls(files, NAMES, NOW)
    before = tls.fingerprints
    files.current.write_text("damaged")
    tls.refresh(lambda: pytest.fail("nothing has changed"))
    assert tls.fingerprints == before
    assert "stays as it was" in caplog.text


def _split(folder: Path, name: str) -> tuple[Path, Path]:
    text = make_certificate(NAMES, NOW)
    start = text.index("-----BEGIN CERT")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    key.write_text(text[:start])
    certificate.write_text(text[start:])
    return certificate, key


def test_another_certificate_is_used_pinned_or_by_its_ca(files: CertificateFiles, tmp_path: Path) -> None:
    certificate, key = _split(tmp_path, "own")
    files.rotate(NOW)
    facts = files.use(certificate, key, SYSTEM)
    assert files.read() == (facts,)
    tls = ServerTls(files, NAMES, NOW)
    assert (tls.fingerprints, tls.ca_file) == ((), "")
    files.use(certificate, key, "/etc/ca.pem")
    tls.refresh(lambda: None)
    assert (tls.fingerprints, tls.ca_file) == ((), "/etc/ca.pem")
    files.use(certificate, key, "")
    tls.refresh(lambda: None)
    assert (tls.fingerprints, tls.ca_file) == ((facts.fingerprint,), "")


def test_a_certificate_that_cannot_be_used_is_refused(files: CertificateFiles, tmp_path: Path) -> None:
    before = files.current.read_bytes()
    certificate, key = _split(tmp_path, "own")
    _, other_key = _split(tmp_path, "other")
    locked, empty = tmp_path / "locked.key", tmp_path / "empty"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:secret"], check=True
    )
    empty.write_text("")
    for pair in ((certificate, other_key), (certificate, locked), (certificate, empty), (empty, key)):
        with pytest.raises(InvalidInput):
            files.use(*pair, "")
    with pytest.raises(InvalidInput, match="cannot be read"):
        files.use(tmp_path / "absent", key, "")
    assert files.current.read_bytes() == before
    assert {path.name for path in files.current.parent.iterdir()} == {"certificate.pem"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", ("127.0.0.1", 0)),
        ("0.0.0.0:8443", ("0.0.0.0", 8443)),
        ("node.example.org:1", ("node.example.org", 1)),
        ("[::]:8443", ("::", 8443)),
        ("[::1]", ("::1", 0)),
        ("::1", ("::1", 0)),
    ],
)
def test_the_address_to_listen_on_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", ":80", "here:x", "here:99999", "[::1", "[::1]80", "here:-1", "here:٣"])
def test_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="HOST"):
        parse_listen(text)


def test_addresses() -> None:
    assert make_url("https", "::1", 5) == "https://[::1]:5"
    assert make_url("http", "127.0.0.1", 5) == "http://127.0.0.1:5"
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("fe80::1%eth0")
