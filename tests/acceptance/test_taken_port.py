"""A server that is started again without --port while another program has the port of the last server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.deadlines import PATIENCE
from tests.instance import alive, until
from tests.ports import free_port

pytestmark = pytest.mark.slow


class Home:
    """A home whose server is started by `up --detach`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pilotage.main",
            "up",
            "--detach",
            "--home",
            str(self.folder),
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def facts(self) -> tuple[int, int]:
        """Port and process of the server."""
        facts = json.loads((self.folder / "server.json").read_text())
        return urlsplit(facts["url"]).port or 0, facts["pid"]

    def stop(self) -> int:
        """End the server; the port that it had."""
        port, pid = self.facts()
        os.kill(pid, signal.SIGTERM)
        until(lambda: not alive(pid), what="the end of the server")
        return port


@contextmanager
def taken(port: int = 0) -> Iterator[int]:
    """Another program listens at a port; 0: at an ephemeral one."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield other.getsockname()[1]


def test_a_home_keeps_how_its_server_listens(tmp_path: Path) -> None:
    """All loopback addresses of this machine are its own; only the first one is the default."""
    home, told = Home(tmp_path / "home"), "may not find"

    def at() -> str:
        return str(json.loads((home.folder / "server.json").read_text())["url"]).rpartition(":")[0]

    first = home.up("--listen", "127.0.0.2", "--pilot-server", "http://127.0.0.3:1")
    assert (first.returncode, at(), told in first.stderr) == (0, "http://127.0.0.2", False)
    port = home.stop()
    again = home.up()
    assert (again.returncode, at(), home.facts()[0], told in again.stderr) == (
        0,
        "http://127.0.0.2",
        port,
        False,
    )
    assert json.loads((home.folder / "listen.json").read_text())["pilot_server"] == "http://127.0.0.3:1"
    home.stop()
    back = home.up("--listen", "127.0.0.1")
    assert (back.returncode, at()) == (0, "http://127.0.0.1")
    assert "listened on 127.0.0.2; this start names 127.0.0.1" in back.stderr
    home.stop()
    refused = home.up("--listen", "192.0.2.1")
    assert refused.returncode != 0
    assert home.up().returncode == 0
    assert at() == "http://127.0.0.1"
    home.stop()


def test_another_port_is_taken_and_told(tmp_path: Path) -> None:
    home, chosen = Home(tmp_path / "home"), free_port()
    assert home.up("--port", str(chosen)).returncode == 0
    assert home.stop() == chosen
    file = home.folder / "server.json"
    with taken() as port:
        # As if the last server had had a port that nobody chose.
        file.write_text(file.read_text().replace(f":{chosen}", f":{port}"))
        done = home.up()
        assert done.returncode == 0, done.stderr
        assert f"Port {port} of the last server is used by another program" in done.stderr
        new_port = home.stop()
    assert new_port != port
    log = (home.folder / "server.log").read_text()
    assert f"another program uses port {port} of the last server, this one has {new_port}" in log


def test_a_port_that_somebody_chose_is_kept_and_not_replaced(tmp_path: Path) -> None:
    home, port = Home(tmp_path / "home"), free_port()
    assert home.up("--port", str(port)).returncode == 0
    home.stop()
    done = home.up()
    assert (done.returncode, done.stderr) == (0, "")
    assert home.stop() == port, "pilots of the last server find this one"
    with taken(port):
        done = home.up()
    assert done.returncode == 5
    assert f"port {port} of 127.0.0.1 cannot be used" in done.stderr
    assert "--port" in done.stderr
