"""Real pilots whose server has another certificate, is reached by a proxy, or is one of several."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.outside.batch.script import PilotSettings, pilot_program, render
from pilotage.server.process.certificates import make_certificate, make_server_context, read_certificate
from tests.deadlines import PATIENCE
from tests.pilot.pilot_server import SECRET, PilotProcess, PilotServer, until
from tests.unit.tls.recording_server import recording

pytestmark = pytest.mark.slow

Start = Callable[..., PilotProcess]


def test_a_changed_certificate_is_named_once_and_the_pilot_leaves(pilot: Start, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text(make_certificate(["127.0.0.1"], time.time()))
    with recording(make_server_context(path)) as other:
        url = f"https://127.0.0.1:{other.port}"
        process = pilot(
            "--server", url, "--fingerprint", "0" * 64, "--patience", "2", only_these_servers=True
        )
        assert process.wait(PATIENCE) == 5
        said = process.said()
        assert other.received == b""
    assert said.count("server unavailable reason=") == 1
    assert read_certificate(path).fingerprint in said
    assert "pilotage server certificate show" in said
    assert SECRET not in said


@pytest.mark.parametrize("days", [-3, 4000])
def test_a_clock_that_is_off_is_named(pilot: Start, tmp_path: Path, days: int) -> None:
    path = tmp_path / "server.pem"
    path.write_text(make_certificate(["127.0.0.1"], time.time() - days * 86400))
    with recording(make_server_context(path)) as other:
        url = f"https://127.0.0.1:{other.port}"
        process = pilot("--server", url, "--ca-file", str(path), "--patience", "1", only_these_servers=True)
        assert process.wait(PATIENCE) == 5
        assert other.received == b""
    assert "the clock of this machine shows 20" in process.said()


def test_a_pilot_goes_on_with_the_next_server(server: PilotServer, pilot: Start) -> None:
    job = server.add("true")
    process = pilot("--server", "http://127.0.0.1:1", only_these_servers=False)
    assert server.finish_of(job)["exit_code"] == 0
    assert process.wait() == 0


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[PilotSettings, dict[str, str]], None]]:
    """Start a batch script in an environment; it is ended after the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(settings: PilotSettings, environment: dict[str, str]) -> None:
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-s"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **environment},
                start_new_session=True,
            )
        processes.append(process)
        assert process.stdin
        process.stdin.write(render(pilot_program(), settings).encode())
        process.stdin.close()

    yield start
    for process in processes:
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.parametrize("by_policy", [True, False])
def test_the_proxy_of_the_ce_or_else_of_the_node_is_used(
    script: Callable[[PilotSettings, dict[str, str]], None], by_policy: bool
) -> None:
    with recording(None) as wanted, recording(None) as other:
        proxy = f"http://127.0.0.1:{wanted.port}"
        node = f"http://127.0.0.1:{other.port}" if by_policy else proxy
        settings = PilotSettings(
            ("https://server.test:8080",),
            SECRET,
            0,
            1,
            0,
            "stamp",
            sys.executable,
            proxy=proxy if by_policy else "",
        )
        script(settings, {"https_proxy": node, "HTTPS_PROXY": node})
        until(lambda: wanted.received.startswith(b"CONNECT server.test:8080 "))
        assert other.received == b""
