"""The batch script with real processes: nothing stays on the node, whoever is killed with -9."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.outside.batch.script import PilotSettings, pilot_program, render
from pilotage.pilot import folders
from tests.deadlines import PATIENCE
from tests.pilot.pilot_server import SECRET, PilotServer, alive, children, until

pytestmark = pytest.mark.slow

Started = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def start(server: PilotServer, tmp: Path, tmp_path: Path) -> Iterator[Started]:
    """Start the script as a batch system would."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(**node_options: str) -> subprocess.Popen[bytes]:
        order = PilotSettings(
            (server.url,),
            *(SECRET, 0, 1, 0, f"stamp-{len(processes)}", sys.executable),
            node_options={f"--batch-{name}": text for name, text in node_options.items()},
        )
        with (tmp_path / "pilot.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-s", order.stamp],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp), "JOB": "7", "NODE": "n 7"},
                start_new_session=True,
                cwd="/",
            )
        processes.append(process)
        assert process.stdin
        process.stdin.write(render(pilot_program(compiled=True), order).encode())
        process.stdin.close()
        return process

    yield started
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


def work_of(process: subprocess.Popen[bytes], server: PilotServer, tmp_path: Path) -> tuple[int, int]:
    """Wait for a long payload to run; the pids of the pilot proper and of the payload."""
    go = tmp_path / "tmp" / "pid"
    server.add("sh", "-c", f"echo $$ > {go}; exec sleep 300")
    until(lambda: go.exists() and go.read_text().endswith("\n"))
    payload = int(go.read_text())
    go.unlink()
    return children(process.pid)[0], payload


def test_no_file_of_the_program_lies_in_the_folder_while_it_runs(
    server: PilotServer, start: Started, tmp: Path, tmp_path: Path
) -> None:
    listing = server.add("sh", "-c", "ls -a $0; ls -l /proc/self/fd", str(tmp))
    process = start()
    finish = server.finish_of(listing)
    assert process.wait(PATIENCE) == 0
    assert list(tmp.iterdir()) == []
    told = base64.b64decode(finish["stdout"]).decode("utf-8", "replace")
    [folder] = [word for word in told.split() if word.startswith("pilotage")]
    assert folder.startswith("pilotage-pilot-0+")
    assert "deleted" not in told, "the program's descriptor has come to the payload"


def test_the_batch_system_tells_a_pilot_of_its_batch_job(server: PilotServer, start: Started) -> None:
    job = server.add("true")
    process = start(id="${JOB}.${TASK:-0}", host="$NODE", end="4102444800")
    server.finish_of(job)
    assert process.wait(PATIENCE) == 0
    [enrolment] = server.enrolments
    assert enrolment["batch_id"] == "7.0"
    nodes = [exchange["take"]["node"] for exchange in server.exchanges if exchange["take"]]
    assert {node["attributes"]["BatchHost"] for node in nodes} == {"n 7"}


def test_nothing_is_left_when_the_pilot_is_killed(
    server: PilotServer, start: Started, tmp: Path, tmp_path: Path
) -> None:
    process = start()
    proper, payload = work_of(process, server, tmp_path)
    os.kill(proper, signal.SIGKILL)
    assert process.wait(PATIENCE) == 70
    assert not alive(payload)
    assert list(tmp.iterdir()) == []


def test_nothing_is_left_when_the_guardian_is_killed(
    server: PilotServer, start: Started, tmp: Path, tmp_path: Path
) -> None:
    process = start()
    _, payload = work_of(process, server, tmp_path)
    process.kill()
    until(lambda: not alive(payload))
    until(lambda: not list(tmp.iterdir()))


def test_the_next_pilot_removes_the_files_of_killed_pilots(
    server: PilotServer, start: Started, tmp: Path, tmp_path: Path
) -> None:
    process = start()
    proper, payload = work_of(process, server, tmp_path)
    os.kill(process.pid, signal.SIGSTOP)  # as a batch system does it: all at once
    os.kill(proper, signal.SIGKILL)
    process.kill()
    process.wait(PATIENCE)
    os.kill(payload, signal.SIGKILL)
    [left] = tmp.iterdir()
    assert left.name.startswith("pilotage-pilot-0+")
    # As if a minute had passed: younger ones may be just being made.
    assert folders.remove_stale(str(tmp), "another-host", 2**40) == []
    living = start()
    work_of(living, server, tmp_path)
    assert len(list(tmp.iterdir())) == 2
    removed = folders.remove_stale(str(tmp), os.uname().nodename, 2**40)
    assert removed == [left.name]  # the other one lives
    living.terminate()
    assert living.wait(PATIENCE) == 0
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize("compiled", [False, True])
def test_a_python_that_is_too_old_leaves_the_program_to_the_next(tmp_path: Path, compiled: bool) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    (path / "old").write_text("#!/bin/sh\nexit 1\n")
    (path / "old").chmod(0o755)
    (path / "python3").symlink_to(sys.executable)
    order = PilotSettings(("http://127.0.0.1:1",), SECRET, 0, 1, 0, "stamp", "old")
    script = render(pilot_program(compiled=compiled), order).replace(
        "/proc/self/fd/3 ", "/proc/self/fd/3 --help "
    )
    done = subprocess.run(
        ["/bin/sh"],
        input=script,
        env={"PATH": f"{path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: pilotage.pilot" in done.stdout


def test_another_version_of_python_reads_the_sources(tmp_path: Path) -> None:
    program, copy = pilot_program(compiled=True), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as archive, zipfile.ZipFile(copy, "w") as changed:
        names = archive.namelist()
        for name in names:
            content = archive.read(name)
            changed.writestr(name, b"else" + content[4:] if name.endswith(".pyc") else content)
    assert {name for name in names if name.endswith(".pyc")}
    (tmp_path / "pilot.pyz").write_bytes(copy.getvalue())
    command = [sys.executable, str(tmp_path / "pilot.pyz"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "usage: pilotage.pilot" in done.stdout
