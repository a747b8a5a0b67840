"""Clients and pilots send nothing to a server whose certificate is not the pinned one."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.client import Client
from pilotage.client.login import log_in
from pilotage.core.errors import InvalidInput, PilotageError, Unreachable
from pilotage.pilot.options import parse
from pilotage.pilot.transport import ServerConnection, ServerUnavailable
from pilotage.server.process.certificates import (
    CertificateFiles,
    make_certificate,
    make_server_context,
    read_certificate,
)
from pilotage.server.process.tls import ServerTls
from pilotage.wire.server_address import UnsafeAddress, check_address
from pilotage.wire.server_trust import CERTIFICATES_HEADER, ServerTrust, parse_fingerprint, split_pinned_url
from tests.deadlines import PATIENCE
from tests.unit.tls.recording_server import recording

TOKEN = "the-token-that-must-not-leave"
OTHER = "0" * 64


class Pair:
    """A certificate file and its facts."""

    def __init__(self, path: Path, names: tuple[str, ...] = ("server.test", "127.0.0.1")) -> None:
        path.write_text(make_certificate(names, time.time()))
        self.path = path
        self.context = make_server_context(path)
        self.fingerprint = read_certificate(path).fingerprint


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "server.pem")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask_as_pilot(url: str, trust: ServerTrust) -> None:
    connection = ServerConnection(url, trust, TOKEN, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/pilot/exchange", b"{}", {})
    finally:
        connection.close()


def ask_as_client(url: str, trust: ServerTrust) -> None:
    with Client(url, TOKEN, trust=trust, patience=1) as client:
        client.shutdown("keep")


ASK = pytest.mark.parametrize("ask", [ask_as_pilot, ask_as_client])
Ask = Callable[[str, ServerTrust], None]


@ASK
def test_the_pinned_server_is_asked(pair: Pair, ask: Ask) -> None:
    with recording(pair.context) as server:
        ask(f"https://127.0.0.1:{server.port}", ServerTrust([OTHER, pair.fingerprint]))
        assert TOKEN.encode() in server.received


@ASK
def test_another_server_is_sent_nothing(pair: Pair, ask: Ask) -> None:
    with recording(pair.context) as server:
        with pytest.raises((ServerUnavailable, Unreachable), match="certificate"):
            ask(f"https://127.0.0.1:{server.port}", ServerTrust([OTHER]))
        assert server.closed.wait(PATIENCE)
        assert server.received == b""


@ASK
def test_a_server_without_tls_is_sent_nothing_but_a_hello(ask: Ask) -> None:
    with recording(None) as server:
        with pytest.raises((ServerUnavailable, PilotageError)):
            ask(f"https://127.0.0.1:{server.port}", ServerTrust([OTHER]))
        assert server.closed.wait(PATIENCE)
        assert TOKEN.encode() not in server.received
        assert b"HTTP" not in server.received


@ASK
def test_a_ca_file_takes_the_place_of_pins(pair: Pair, tmp_path: Path, ask: Ask) -> None:
    stranger = Pair(tmp_path / "stranger.pem")
    with recording(pair.context) as server:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises((ServerUnavailable, Unreachable), match="certificate"):
            ask(url, ServerTrust(ca_file=str(stranger.path)))
        with pytest.raises((ServerUnavailable, Unreachable), match="certificate"):
            ask(url, ServerTrust())  # the system's CAs
        assert server.received == b""
        ask(url, ServerTrust(ca_file=str(pair.path)))
        assert TOKEN.encode() in server.received


def test_a_ca_must_have_issued_the_certificate_for_this_name(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "server.pem", ("server.test",))
    with recording(pair.context) as server:
        with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1"):
            ask_as_pilot(f"https://127.0.0.1:{server.port}", ServerTrust(ca_file=str(pair.path)))
        assert server.received == b""


def test_tls_below_1_2_is_refused(pair: Pair) -> None:
    assert pair.context.minimum_version == ssl.TLSVersion.TLSv1_2
    for trust in (ServerTrust([OTHER]), ServerTrust()):
        assert trust.make_context().minimum_version == ssl.TLSVersion.TLSv1_2


@ASK
def test_pins_follow_what_the_pinned_server_announces(pair: Pair, ask: Ask) -> None:
    announced = f"{CERTIFICATES_HEADER}: {pair.fingerprint},{OTHER}\r\n".encode()
    trust = ServerTrust([pair.fingerprint])
    with recording(pair.context, announced) as server:
        ask(f"https://127.0.0.1:{server.port}", trust)
    assert trust.fingerprints == (pair.fingerprint, OTHER)


@ASK
def test_a_pin_that_has_missed_the_whole_rotation_still_finds_the_server(tmp_path: Path, ask: Ask) -> None:
    """The server proves itself by the previous certificate, then announces the new one."""
    files = CertificateFiles(tmp_path / "secrets")
    tls = ServerTls(files, ["127.0.0.1"], time.time())
    (old,) = tls.fingerprints
    files.rotate(time.time())
    new = files.activate(time.time()).fingerprint
    tls.refresh(lambda: None, time.time())
    announced = f"{CERTIFICATES_HEADER}: {','.join(tls.fingerprints)}\r\n".encode()
    trust = ServerTrust([OTHER, old])
    with recording(tls.context, announced) as server:
        url = f"https://127.0.0.1:{server.port}"
        ask(url, trust)
        assert trust.fingerprints == (new, old)
        assert server.connections == 3  # as usual, by the name of OTHER, by that of the old one
        ask(url, trust)
        assert server.connections == 4
        files.forget_previous()
        tls.refresh(lambda: None, time.time())
        ask(url, ServerTrust([new]))
        received = server.received
        with pytest.raises((ServerUnavailable, Unreachable), match=new):
            ask(url, ServerTrust([old]))
        assert server.received == received


@pytest.mark.parametrize("announced", ["", "nonsense", OTHER, f"{OTHER},{OTHER}", "x" * 100_000])
def test_pins_ignore_announcements_without_a_present_pin(announced: str) -> None:
    trust = ServerTrust(["a" * 64])
    assert not trust.learn(announced)
    assert trust.fingerprints == ("a" * 64,)


def test_a_proxy_sees_the_name_of_a_server_and_no_token(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(pair.context) as server, recording(None) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{proxy.port}")
        for number, ask in enumerate([ask_as_pilot, ask_as_client], 1):
            ask(f"https://server.test:{server.port}", ServerTrust([pair.fingerprint]))
            assert server.received.count(TOKEN.encode()) == number
        assert TOKEN.encode() not in proxy.received
        assert proxy.received.count(b"CONNECT server.test:") == 2
        assert proxy.received.count(b"Proxy-Authorization: Basic dXNlcjpwYXNz\r\n") == 2


def test_a_wrong_pin_behind_a_proxy_is_sent_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(pair.context) as server, recording(None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        for ask in (ask_as_pilot, ask_as_client):
            with pytest.raises((ServerUnavailable, Unreachable), match="certificate"):
                ask(f"https://server.test:{server.port}", ServerTrust([OTHER]))
        assert server.closed.wait(PATIENCE)
        assert server.received == b""


@pytest.mark.parametrize("trust", [ServerTrust(), ServerTrust([OTHER])])
@pytest.mark.parametrize("host", ["server.test", "192.0.2.1", "127.0.0.1"])
def test_no_secret_leaves_without_tls(monkeypatch: pytest.MonkeyPatch, host: str, trust: ServerTrust) -> None:
    """A pin needs TLS also on loopback, since another program may listen there."""
    if host == "127.0.0.1" and not trust.fingerprints:
        pytest.skip("a loopback address without a pin needs no TLS")
    with recording(None) as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
        for ask in (ask_as_pilot, ask_as_client):
            with pytest.raises((ValueError, InvalidInput), match="https is needed"):
                ask(f"http://{host}:{proxy.port}", trust)
        assert proxy.received == b""


def test_a_pin_in_the_address_or_the_home_needs_tls(tmp_path: Path) -> None:
    with recording(None) as server:
        address = f"http://127.0.0.1:{server.port}"
        (tmp_path / "server.json").write_text(
            json.dumps({"url": address, "pid": None, "fingerprints": [OTHER]})
        )
        (tmp_path / "token").write_text(TOKEN)
        for connect in (
            lambda: Client(f"{address}#sha256={OTHER}", TOKEN),
            lambda: Client.connect(home=tmp_path, server=f"{address}#sha256={OTHER}"),
            lambda: Client.connect(home=tmp_path),
            lambda: Client.connect(home=tmp_path, server=address),
            lambda: log_in(f"{address}#sha256={OTHER}", TOKEN, tmp_path / "new"),
        ):
            with pytest.raises(InvalidInput, match="https is needed"):
                connect()
        assert server.received == b""


def test_the_pilot_refuses_its_options_before_it_reads_the_secret(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["http://127.0.0.1:1", "--fingerprint", OTHER], ["http://server.test:1"]):
        with pytest.raises(SystemExit) as refused:
            parse(["--index", "0", "--server", *words], {})
        assert refused.value.code == 2
        assert "https is needed" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["localhost.example.org", "127.example.org", "[::2]", "0.0.0.0"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    with pytest.raises(UnsafeAddress):
        check_address(f"http://{host}:1", pinned=False)


def test_a_loopback_address_needs_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(None) as server:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        for ask in (ask_as_pilot, ask_as_client):
            ask(f"http://127.0.0.1:{server.port}", ServerTrust())
        assert server.received.count(TOKEN.encode()) == 2


@pytest.mark.parametrize("text", ["A" * 64, ":".join(["aa"] * 32), " " + "a" * 64 + "\n"])
def test_fingerprints_are_read_as_openssl_writes_them(text: str) -> None:
    assert parse_fingerprint(text) == "a" * 64


def test_a_pinned_address_has_one_or_more_fingerprints() -> None:
    assert split_pinned_url("https://here:1") == ("https://here:1", ())
    assert split_pinned_url(f"https://here:1#sha256={OTHER},{'A' * 64}") == (
        "https://here:1",
        (OTHER, "a" * 64),
    )


@pytest.mark.parametrize("end", ["#", "#sha256=", "#sha256=12", f"#md5={OTHER}", f"#sha256={OTHER},", "#x"])
def test_another_ending_of_an_address_is_refused(end: str) -> None:
    with pytest.raises(ValueError, match="not"):
        split_pinned_url("https://here:1" + end)
    with pytest.raises(InvalidInput):
        Client("https://here:1" + end, TOKEN)


@ASK
@pytest.mark.parametrize("days", [-3, 4000])
def test_a_clock_that_is_off_is_named(tmp_path: Path, ask: Ask, days: int) -> None:
    """A CA's certificate that is not valid yet, or no longer: the message has the time of this machine."""
    path = tmp_path / "server.pem"
    path.write_text(make_certificate(["127.0.0.1"], time.time() - days * 86400))
    dates = [time.strftime("%Y-%m-%d", time.gmtime(time.time() + later)) for later in (0, PATIENCE)]
    told = f"clock of this machine shows ({'|'.join(dates)})"
    with recording(make_server_context(path)) as server:
        with pytest.raises((ServerUnavailable, Unreachable), match=told):
            ask(f"https://127.0.0.1:{server.port}", ServerTrust(ca_file=str(path)))
        assert server.received == b""
