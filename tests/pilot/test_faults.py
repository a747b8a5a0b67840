from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.pilot.standard_streams import MAX_END
from tests.pilot.pilot_server import SRC, PilotProcess, PilotServer, alive, until

pytestmark = pytest.mark.slow

Start = Callable[..., PilotProcess]


def pid_written_to(place: Path) -> int:
    return int(until(lambda: place.exists() and place.read_text().strip()))


def long_job(server: PilotServer, place: Path, **fields: object) -> int:
    return server.add("sh", "-c", f"echo $$ > {place}; exec sleep 300", **fields)


def test_a_signal_gives_the_jobs_back(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    job = long_job(server, tmp_path / "pid")
    process = pilot()
    payload = pid_written_to(tmp_path / "pid")
    process.process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert not alive(payload)
    assert server.releases == {job: "received SIGTERM"}
    assert server.left == "received SIGTERM"


def test_the_output_of_a_job_that_is_given_back_is_delivered_first(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    script = (
        "trap 'echo last words; echo and errors >&2; exit 1' TERM; echo one;"
        f" touch {tmp_path}/ready; while :; do sleep 0.05; done"
    )
    job = server.add("sh", "-c", script)
    process = pilot()
    until((tmp_path / "ready").exists)
    server.tails_go_on.clear()
    process.process.send_signal(signal.SIGTERM)
    until(lambda: "killing payload" in process.said())
    assert job not in server.releases
    server.tails_go_on.set()
    assert process.wait() == 0
    assert server.releases == {job: "received SIGTERM"}
    assert server.tails[job, "stdout"] == b"one\nlast words\n"
    # The shell may say there that its `sleep` was terminated.
    assert server.tails[job, "stderr"].endswith(b"and errors\n")


def test_of_much_output_the_end_is_delivered(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    script = f"head -c 1000000 /dev/zero; echo end; touch {tmp_path}/ready; exec sleep 300"
    job = server.add("sh", "-c", script)
    process = pilot()
    until((tmp_path / "ready").exists)
    process.process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    note, _, rest = server.tails[job, "stdout"].partition(b"\n")
    assert note == b"[%d bytes are left out here]" % (1_000_004 - MAX_END)
    assert len(rest) == MAX_END
    assert rest.endswith(b"\0end\n")


def test_a_server_that_takes_no_output_does_not_hold_up_the_release(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    job = server.add("sh", "-c", f"echo one; echo $$ > {tmp_path}/pid; exec sleep 300")
    process = pilot()
    pid_written_to(tmp_path / "pid")
    server.tails_go_on.clear()
    try:
        process.process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        server.tails_go_on.set()
    assert server.releases == {job: "received SIGTERM"}


def test_nothing_outlives_a_pilot_killed_with_9(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.add(
        "sh",
        "-c",
        f"setsid sh -c 'echo $$ > {tmp_path}/run; exec sleep 300' & echo $$ > {tmp_path}/pid; wait",
    )
    process = pilot()
    pids = [pid_written_to(tmp_path / "pid"), pid_written_to(tmp_path / "run")]
    os.kill(process.pilot_proper, signal.SIGKILL)
    assert process.wait() == 70
    assert not any(alive(pid) for pid in pids)


def test_nothing_outlives_a_guardian_killed_with_9(
    server: PilotServer, pilot: Start, workdir: Path, tmp_path: Path
) -> None:
    job = long_job(server, tmp_path / "pid")
    process = pilot()
    payload, proper = pid_written_to(tmp_path / "pid"), process.pilot_proper
    os.kill(process.process.pid, signal.SIGKILL)
    server.wait_for(lambda: job in server.releases)
    until(lambda: not alive(payload) and not alive(proper))
    until(lambda: not list(workdir.iterdir()))


def test_a_server_that_was_away_gets_the_result(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = server.add("sh", "-c", f"echo $$ > {tmp_path}/pid; while [ ! -e {go} ]; do sleep 0.05; done")
    process = pilot()
    payload = pid_written_to(tmp_path / "pid")
    server.away()
    go.touch()
    until(lambda: not alive(payload))
    until(lambda: "server unavailable" in process.said())
    assert not server.finishes
    server.start()
    assert server.finish_of(job)["exit_code"] == 0
    assert process.wait() == 0


def test_a_lost_answer_costs_nothing(server: PilotServer, pilot: Start) -> None:
    server.lost_answers = 3
    jobs = [server.add("true") for _ in range(20)]
    process = pilot()
    server.wait_for(lambda: len(server.finishes) == len(jobs))
    assert process.wait() == 0
    assert not server.releases


def test_jobs_that_are_no_longer_ours_are_ended_and_not_reported(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    job = long_job(server, tmp_path / "pid")
    process = pilot()
    payload = pid_written_to(tmp_path / "pid")
    server.stop.add(job)
    until(lambda: not alive(payload))
    assert process.wait() == 0
    assert not server.finishes
    assert not server.releases


def test_a_superseded_pilot_ends_its_payloads(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    long_job(server, tmp_path / "pid")
    process = pilot()
    payload = pid_written_to(tmp_path / "pid")
    server.refuse = (409, "superseded")
    assert process.wait() == 3
    assert not alive(payload)


def test_a_frozen_pilot_asks_before_it_goes_on(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.enrol.update(lease=1.0, heartbeat=0.2)
    job = long_job(server, tmp_path / "pid")
    process = pilot()
    payload, proper = pid_written_to(tmp_path / "pid"), process.pilot_proper
    os.kill(proper, signal.SIGSTOP)
    server.stop.add(job)
    other = server.add("true")
    os.kill(proper, signal.SIGCONT)
    until(lambda: not alive(payload))
    server.finish_of(other)
    assert process.wait() == 0
    assert job not in server.finishes


def test_payloads_that_wish_so_end_with_the_lease(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.enrol.update(lease=1.5, heartbeat=0.3)
    job = long_job(server, tmp_path / "pid", on_cutoff="stop")
    process = pilot()
    payload = pid_written_to(tmp_path / "pid")
    server.away()
    until(lambda: not alive(payload))
    server.start()
    assert server.finish_of(job)["failure"] == "cut-off"
    process.wait()


def test_a_draining_pilot_ends_its_job_and_takes_no_more(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    job = server.add(
        "sh", "-c", f"echo $$ > {tmp_path}/pid; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    )
    server.enrol.update(idle=100)
    process = pilot()
    pid_written_to(tmp_path / "pid")
    server.leave = "drain"
    server.add("true")
    (tmp_path / "go").touch()
    assert process.wait() == 0
    assert (server.left, list(server.finishes)) == ("told to leave", [job])


def test_the_end_of_its_time(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.enrol.update(wall=12.0, margin=0.2, least=0.5)
    job = long_job(server, tmp_path / "pid")
    process = pilot()
    assert process.wait() == 0
    assert server.releases == {job: "out of time"}


def test_without_a_server_it_leaves(server: PilotServer, pilot: Start) -> None:
    server.away()
    assert pilot("--patience", "0.3").wait() == 5


def test_a_wrong_secret_is_no_reason_to_try_again(server: PilotServer, pilot: Start) -> None:
    server.refuse = (403, "forbidden")
    process = pilot()
    assert process.wait() == 4
    assert "a-secret" not in process.said()


def test_tails_of_watched_jobs(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.follow = [1]
    server.enrol.update(heartbeat=0.2)
    server.add("sh", "-c", f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    process = pilot()
    server.wait_for(lambda: server.tails[(1, "stdout")] == b"one\n")
    (tmp_path / "go").touch()
    assert process.wait() == 0


@pytest.mark.parametrize("version", ["python3.9", "python3"])
def test_it_runs_as_a_zipapp(server: PilotServer, pilot: Start, tmp_path: Path, version: str) -> None:
    python = shutil.which(version)
    if python is None or subprocess.run([python, "-V"], capture_output=True).returncode:
        pytest.skip(f"no {version} on PATH")
    source = tmp_path / "zip" / "pilotage"
    skip = shutil.ignore_patterns("__pycache__")
    for part in ("wire", "pilot"):
        shutil.copytree(SRC / "pilotage" / part, source / part, ignore=skip)
    shutil.copy(SRC / "pilotage" / "__init__.py", source)
    zipapp.create_archive(source.parent, tmp_path / "pilot.pyz", main="pilotage.pilot.__main__:main")
    job = server.add("true")
    process = pilot(python=python, program=tmp_path / "pilot.pyz")
    assert server.finish_of(job)["exit_code"] == 0, process.said()
    assert process.wait() == 0


def test_payloads_learn_no_secrets(server: PilotServer, pilot: Start) -> None:
    script = "env; tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline; ls /proc/self/fd"
    finish_job = server.add("sh", "-c", script)
    pilot()
    said = base64.b64decode(server.finish_of(finish_job)["stdout"]).decode()
    assert "a-secret" not in said
    assert "a-token" not in said
    assert "SLURM" not in said
    assert said.split()[-4:] == ["0", "1", "2", "3"]  # 3 is the listing's own
