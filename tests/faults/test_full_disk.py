"""A disk that fills up: everybody is told, running jobs report, and all goes on when there is room again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pilotage.core.errors import DiskFull
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

SIZE = 160
"""MB of the disk: its floor is 8, and 16 are kept for reports."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def server(tmp_path: Path, disk: Path) -> Iterator[Instance]:
    instance = Instance(disk)
    instance.home.mkdir(mode=0o700)
    # The log of the test is on another disk.
    (instance.home / "test.log").symlink_to(tmp_path / "test.log")
    (tmp_path / "test.log").touch()
    try:
        instance.start("--least-free", "8")
        instance.apply()
        yield instance
    finally:
        (disk / "filling").unlink(missing_ok=True)
        instance.close()


def fill(disk: Path, leave: int = 0) -> None:
    """Write until so many MB are free."""
    with (disk / "filling").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            usage = os.statvfs(disk)
            left = usage.f_bavail * usage.f_frsize - leave * 1_000_000
            if left <= 0:
                return
            file.write(b"x" * min(left, 1_000_000))


def get(server: Instance, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", trust_env=False, timeout=PATIENCE)


def gated(server: Instance, gate: Path) -> int:
    """A job that runs until `gate` is there."""
    script = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo through"
    return server.client().submit({"executable": "sh", "arguments": ["-c", script]}).first


def reserve(server: Instance) -> Path:
    return server.home / "pilotage.db.reserve"


def full(server: Instance) -> bool:
    """Whether the database cannot be written."""
    try:
        server.client().create_token("alice")
    except DiskFull:
        return True
    return False


@pytest.mark.slow
def test_a_disk_that_fills_up(server: Instance, disk: Path, tmp_path: Path) -> None:
    until(reserve(server).exists, what="the reserve")
    gates = [tmp_path / "first", tmp_path / "second"]
    first, second = (gated(server, gate) for gate in gates)
    waiting = server.client().submit({"executable": "true"}).first
    for job in (first, second):
        server.reaches(job, "Running")

    # Below the floor nothing new is accepted, and everybody is told.
    fill(disk, leave=6)
    refused = server.cli("submit", "--", "true")
    assert refused.returncode != 0
    assert "nearly full" in refused.stderr
    with pytest.raises(DiskFull, match="nearly full"):
        server.client().submit({"executable": "true"})
    token = (server.home / "token").read_text().strip()
    answer = httpx.put(
        f"http://127.0.0.1:{server.port}/v1/uploads/{'a' * 64}",
        content=b"some bytes",
        headers={"authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=PATIENCE,
    )
    assert answer.status_code == 507
    assert answer.json()["code"] == "disk-full"
    assert int(answer.headers["retry-after"]) > 0
    ready = get(server, "/ready")
    assert ready.status_code == 503
    assert ready.json()["status"] == "disk-full"
    assert "nearly full" in ready.json()["reason"]
    assert "pilotage_disk_full 1" in get(server, "/metrics").text
    assert get(server, "/live").status_code == 200
    for words in (("status",), ("why", str(waiting)), ("status", "--json")):
        told = server.cli(*words)
        assert told.returncode == 0
        assert "warning: the disk of the server's database is nearly full" in told.stderr
    assert json.loads(told.stdout)

    # Running jobs report, and the waiting one goes on, also when others have filled the disk.
    fill(disk)
    until(lambda: not reserve(server).exists(), what="the end of the reserve")
    gates[0].touch()
    server.reaches(first, "Done")
    server.reaches(waiting, "Done")

    # Not even the reserve is left: reports wait at the pilots.
    fill(disk)
    until(lambda: fill(disk) or full(server), what="a disk that is full to the last byte")
    gates[1].touch()
    assert full(server)
    assert server.cli("status").returncode == 0

    # There is room again, and nobody has to do anything.
    (disk / "filling").unlink()
    until(lambda: get(server, "/ready").status_code == 200, what="room")
    server.reaches(second, "Done")
    assert server.cli("logs", str(second)).stdout == "through\n"
    again = server.client().submit({"executable": "true"}).first
    server.reaches(again, "Done")
    assert server.cli("status").stderr == ""
    until(reserve(server).exists, what="the reserve again")

    lines = [line for line in server.log().splitlines() if "WARNING" in line or "ERROR" in line]
    assert "Traceback" not in server.log()
    assert len(lines) <= 8, lines
    assert any("nearly full" in line for line in lines)
    assert any("the disk has room again" in line for line in lines)
    server.stop_server()
    assert server.cli("db", "check").returncode == 0
