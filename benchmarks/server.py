"""A server for a benchmark: its own home, ended afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pilotage.client import Client
from pilotage.wire.server_trust import ServerTrust

WITHIN = 120.0


@contextmanager
def served(
    folder: Path,
    *,
    again: bool = False,
    database: str = "",
    listen: str = "",
    python: str = sys.executable,
    options: Sequence[str] = (),
) -> Iterator[Client]:
    """A client of a fresh `pilotage up`, with its defaults; `again`: of one on the home that is there.

    `database`: the address of a PostgreSQL database to be used instead of a file. `listen`: an address instead of
    127.0.0.1; off loopback the server talks TLS. `python`: the interpreter that has Pilotage installed. `options`:
    further ones of `up`.
    """
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=again)
    process = start(folder, database, *(["--listen", listen] if listen else []), *options, python=python)
    try:
        deadline = time.monotonic() + WITHIN
        while not _ready(home, process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "server.log").read_text())
            time.sleep(0.05)
        with Client.connect(home=home) as client:
            yield client
            client.shutdown("cancel")
        process.wait(WITHIN)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def start(
    folder: Path, database: str = "", *options: str, python: str = sys.executable
) -> subprocess.Popen[bytes]:
    """`pilotage up` on the home in `folder`; its words go to server.log beside it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PILOTAGE_")}
    command = [python, "-m", "pilotage.main", "up", "--home", str(folder / "home"), *options]
    if database:
        command += ["--database-url", database]
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)


def server_pid(folder: Path) -> int:
    """The process id of the server on the home in `folder`."""
    return int(json.loads((folder / "home" / "server.json").read_text())["pid"])


def _ready(home: Path, pid: int) -> bool:
    """Whether this server has said where it is; an earlier one of the home may have, too."""
    try:
        return bool(json.loads((home / "server.json").read_text())["pid"] == pid)
    except (FileNotFoundError, ValueError):
        return False


def index_waiting(url: str, fingerprints: Sequence[str] = ()) -> int:
    """Waiting jobs that the index of the server knows so far; -1 if it does not answer. The pins are those of TLS."""
    context = ServerTrust(fingerprints).make_context() if fingerprints else None
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60, context=context) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return -1
    name = "pilotage_index_waiting_jobs "
    return int(next((line.removeprefix(name) for line in lines if line.startswith(name)), "-1"))
