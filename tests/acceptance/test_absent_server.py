"""Commands while no server answers: told at once, waited for only while one starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

AT_ONCE = PATIENCE / 3
"""Many times as long as a command takes; before, each of these took a minute or waited on."""

COMMANDS = (["status"], ["submit", "--", "true"], ["wait", "1"], ["output", "1"], ["logs", "1"], ["down"])


@pytest.mark.slow
def test_a_suspended_server_is_told_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        assert instance.process is not None
        with instance.suspended():
            for words in COMMANDS:
                begin = time.monotonic()
                done = instance.cli(*words)
                assert time.monotonic() - begin < AT_ONCE, words
                assert done.returncode == 6, (words, done.stderr)
                assert f"kill -CONT {instance.process.pid}" in done.stderr
        assert instance.cli("status").returncode == 0


@pytest.mark.slow
def test_a_removed_address_file_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        facts = instance.home / "server.json"
        before = facts.read_text()
        facts.unlink()
        until(facts.exists, what="server.json")
        assert facts.read_text() == before
        assert instance.cli("status").returncode == 0


def connections_to(port: int, home: Path, words: list[str], **more: str) -> tuple[int, str, int]:
    """(exit code, stderr, tries) of a command while nobody takes connections at `port`."""
    script = (
        "import socket, sys\n"
        "tries = 0\n"
        "def hook(event, arguments):\n"
        "    global tries\n"
        f"    tries += event == 'socket.connect' and arguments[1][1] == {port}\n"
        "sys.addaudithook(hook)\n"
        "from pilotage.cli.root import build, run\n"
        "code = run(build(), sys.argv[1:])\n"
        "print(tries)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, "PILOTAGE_HOME": str(home), **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr, int(done.stdout.split()[-1])


@pytest.mark.parametrize("words", COMMANDS[:-1])
def test_a_refused_connection_is_not_tried_again(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "token").write_text("x")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        (tmp_path / "server.json").write_text(
            f'{{"url": "http://127.0.0.1:{port}", "pid": 4194310, "host": ""}}'
        )
        code, err, tries = connections_to(port, tmp_path, words)
        assert (code, tries) == (6, 1), err
        assert "pilotage up" in err
        assert len(err.splitlines()) == 2
        code, err, tries = connections_to(port, tmp_path, words, PILOTAGE_PATIENCE="1s")
        assert code == 6
        assert tries > 1, "whoever asks for patience gets it"


@pytest.mark.slow
def test_a_server_that_starts_is_waited_for(tmp_path: Path) -> None:
    """Its lock is held by a living process, and its address is that of the last server."""
    instance = Instance(tmp_path)
    try:
        instance.start()
        instance.stop_server()
        instance.start(wait=False)
        assert instance.process is not None
        pid = str(instance.process.pid)
        until(lambda: pid in (instance.home / "lock").read_text(), what="the new server's lock")
        assert instance.cli("status").returncode == 0
    finally:
        instance.close()
