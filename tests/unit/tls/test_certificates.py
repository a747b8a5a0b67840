"""The server's certificates: made once for its owner alone, rotated in two steps, replaced by others."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.http.addresses import check_proxies, is_loopback, make_url, parse_listen
from pilotage.server.process.certificates import (
    PREVIOUS_KEPT,
    SYSTEM,
    Certificate,
    CertificateFiles,
    make_certificate,
)
from pilotage.server.process.tls import ServerTls
from pilotage.wire.tls import fingerprint_of

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
        files.activate(NOW)
    new = files.rotate(NOW)
    assert files.read() == (old, new)
    assert new.names == old.names
    assert files.next.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="already"):
        files.rotate(NOW)
    assert files.activate(NOW) == new
    assert files.read() == (new, old)
    assert files.previous.stat().st_mode & 0o777 == 0o600
    assert not files.forget_previous(older_than=files.previous.stat().st_mtime)
    assert files.forget_previous()
    assert files.read() == (new,)


def test_a_running_server_takes_changed_files_up(files: CertificateFiles) -> None:
    tls, changes = ServerTls(files, NAMES, NOW), list[Sequence[str]]()

    def refresh() -> None:
        tls.refresh(lambda: changes.append(tls.fingerprints), NOW)

    (old,) = files.read()
    refresh()
    new = files.rotate(NOW)
    refresh()
    files.activate(NOW)
    refresh()
    refresh()
    assert changes == [(old.fingerprint, new.fingerprint), (new.fingerprint, old.fingerprint)]


def test_the_previous_certificate_is_forgotten_after_30_days(files: CertificateFiles) -> None:
    tls = ServerTls(files, NAMES, NOW)
    files.rotate(NOW)
    new = files.activate(NOW)
    replaced = files.previous.stat().st_mtime
    tls.refresh(lambda: None, replaced + PREVIOUS_KEPT.total_seconds())
    assert len(tls.fingerprints) == 2
    tls.refresh(lambda: None, replaced + PREVIOUS_KEPT.total_seconds() + 1)
    assert tls.fingerprints == (new.fingerprint,)


def test_the_log_warns_once_a_day_of_an_end_that_clients_check(
    files: CertificateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = _split(tmp_path, "own")
    pinned = ServerTls(files, NAMES, NOW)
    pinned.refresh(lambda: None, NOW + 3640 * 86400)
    assert caplog.text == ""
    end = files.use(certificate, key, SYSTEM, NOW).expires
    checked = ServerTls(files, NAMES, NOW)
    checked.refresh(lambda: None, end - 31 * 86400)
    assert caplog.text == ""
    for hour in range(25):
        checked.refresh(lambda: None, end - 10 * 86400 + hour * 3600)
    assert [record.message[:32] for record in caplog.records] == [
        "the certificate ends in 10 days;",
        "the certificate ends in 9 days; ",
    ]
    checked.refresh(lambda: None, end + 86400)
    assert "has ended" in caplog.text


def test_a_damaged_file_changes_nothing(files: CertificateFiles, caplog: pytest.LogCaptureFixture) -> None:
    tls = ServerTls(files, NAMES, NOW)
    before = tls.fingerprints
    files.current.write_text("damaged")
    tls.refresh(lambda: pytest.fail("nothing has changed"), NOW)
    assert tls.fingerprints == before
    assert "stays as it was" in caplog.text


def _split(folder: Path, name: str) -> tuple[Path, Path]:
    text = make_certificate(NAMES, NOW)
    start = text.index("-----BEGIN CERT")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    key.touch(mode=0o600)
    key.write_text(text[:start])
    certificate.write_text(text[start:])
    return certificate, key


def test_another_certificate_is_used_pinned_or_by_its_ca(files: CertificateFiles, tmp_path: Path) -> None:
    certificate, key = _split(tmp_path, "own")
    files.rotate(NOW)
    (old, _) = files.read()
    facts = files.use(certificate, key, SYSTEM, NOW)
    assert files.read() == (facts, old)
    tls = ServerTls(files, NAMES, NOW)
    assert (tls.fingerprints, tls.ca_file) == ((), "")
    files.use(certificate, key, "/etc/ca.pem", NOW)
    tls.refresh(lambda: None, NOW)
    assert (tls.fingerprints, tls.ca_file) == ((), "/etc/ca.pem")
    files.use(certificate, key, "", NOW, replace=True)
    tls.refresh(lambda: None, NOW)
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
    for file in (locked, empty):
        file.chmod(0o600)
    for pair in ((certificate, other_key), (certificate, locked), (certificate, empty), (empty, key)):
        with pytest.raises(InvalidInput):
            files.use(*pair, "", NOW)
    with pytest.raises(InvalidInput, match="cannot be read"):
        files.use(tmp_path / "absent", key, "", NOW)
    assert files.current.read_bytes() == before
    assert {path.name for path in files.current.parent.iterdir()} == {"certificate.pem"}


def test_a_key_that_others_can_read_is_refused(files: CertificateFiles, tmp_path: Path) -> None:
    certificate, key = _split(tmp_path, "own")
    key.chmod(0o640)
    with pytest.raises(InvalidInput, match="other accounts can read"):
        files.use(certificate, key, "", NOW)


def test_dates_and_names_that_clients_would_refuse(files: CertificateFiles, tmp_path: Path) -> None:
    certificate, key = _split(tmp_path, "own")
    for now in (NOW - 2 * 86400, NOW + 4000 * 86400):
        with pytest.raises(InvalidInput, match=r"is valid from 2027-01-14 .* to 2037-"):
            files.use(certificate, key, "", now)
    with pytest.raises(InvalidInput, match=r"not for elsewhere\.org, but for node\.example\.org, 192"):
        files.use(certificate, key, SYSTEM, NOW, "elsewhere.org")
    files.use(certificate, key, "", NOW, "elsewhere.org")  # nobody checks the names of a pinned one
    assert files.use(certificate, key, SYSTEM, NOW, "NODE.example.org").names == NAMES


def test_a_wildcard_covers_one_label() -> None:
    certificate = Certificate("", ("*.example.org", "192.0.2.7"), "", 0.0, 0.0)
    assert certificate.matches("node.example.org")
    assert certificate.matches("192.0.2.7")
    assert not certificate.matches("example.org")
    assert not certificate.matches("a.node.example.org")
    assert not certificate.matches("")


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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("127.0.0.1", "127.0.0.1"),
        (" 127.0.0.1, ::1,", "127.0.0.1,::1"),
        ("10.1.0.0/16", "10.1.0.0/16"),
    ],
)
def test_addresses_of_proxies(text: str, names: str) -> None:
    assert check_proxies(text) == names


@pytest.mark.parametrize("text", ["*", "proxy.example.org", "127.0.0.1:80", "10.1.0.1/16", "127.0.0.1 ::1"])
def test_whom_nobody_can_name_as_a_proxy(text: str) -> None:
    with pytest.raises(InvalidInput, match="no address or network"):
        check_proxies(text)
