from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pilot.pilot_server import BEGUN, PilotProcess, PilotServer, alive, until

pytestmark = pytest.mark.slow

Start = Callable[..., PilotProcess]


def shell(server: PilotServer, script: str, **fields: object) -> int:
    return server.add("sh", "-c", script, **fields)


def out(finish: dict[str, Any]) -> str:
    return base64.b64decode(finish["stdout"]).decode()


def test_limits_end_the_whole_tree_and_keep_the_output(server: PilotServer, pilot: Start) -> None:
    server.enrol.update(processors=4)
    hog = f"{sys.executable} -c 'import time; x = bytearray(150_000_000); time.sleep(60)'"
    wall = shell(server, "echo before; sleep 600 & wait", wall_time=BEGUN)
    cpu = shell(server, "while :; do :; done", cpu_time=1.0)
    memory = shell(server, f"echo before; {hog} & wait", memory=50)
    spread = shell(server, "(while :; do :; done) & (while :; do :; done) & wait", cpu_time=1.0)
    process = pilot("--processors", "4", "--memory", "4000")
    assert server.finish_of(wall)["failure"] == "limit-wall"
    assert server.finish_of(cpu)["failure"] == "limit-cpu"
    assert server.finish_of(memory)["failure"] == "limit-memory"
    assert server.finish_of(spread)["failure"] == "limit-cpu"
    assert out(server.finishes[wall]) == out(server.finishes[memory]) == "before\n"
    assert BEGUN <= server.finishes[wall]["wall"] < 600
    assert process.wait() == 0


def test_a_payload_that_ignores_sigterm_is_killed(
    server: PilotServer, pilot: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shell(server, "trap '' TERM; while :; do sleep 1; done", wall_time=BEGUN)
    process = pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], finish["signal"]) == ("limit-wall", 9)
    assert process.wait() == 0


CHECKPOINT = "trap 'echo saved > checkpoint; exit 0' USR1; sleep 60 & while :; do wait; done"


@pytest.mark.parametrize("end", ["wall time", "pilot"])
def test_a_payload_is_warned_before_its_end_and_writes_its_checkpoint(
    server: PilotServer, pilot: Start, end: str
) -> None:
    if end == "pilot":
        server.enrol.update(wall=44.0, margin=1.0, least=2.0)
    limits = {"warn": 33.0} if end == "pilot" else {"wall_time": 43.0, "warn": 37.0}
    job = shell(server, CHECKPOINT, outputs=["checkpoint"], **limits)
    pilot()
    finish = server.finish_of(job)
    assert (finish["exit_code"], finish["failure"]) == (0, "")
    assert server.uploads[(job, finish["epoch"], "checkpoint")] == b"saved\n"
    assert 2.0 <= finish["wall"] < 42, "the signal came before the end, and not at once"


def test_the_warning_reaches_the_whole_group(server: PilotServer, pilot: Start) -> None:
    child = "trap 'echo child >> seen; exit 0' USR1; while :; do sleep 0.1; done"
    script = f"trap 'echo shell >> seen' USR1; sh -c \"{child}\"; sort seen"
    job = shell(server, script, wall_time=60.0, warn=60.0 - BEGUN)
    pilot()
    finish = server.finish_of(job)
    assert (finish["exit_code"], out(finish)) == (0, "child\nshell\n")


def test_a_payload_that_asks_for_no_warning_gets_none(server: PilotServer, pilot: Start) -> None:
    job = shell(server, "trap 'echo warned' USR1; while :; do sleep 0.1; done", wall_time=2.5)
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], out(finish)) == ("limit-wall", "")


@pytest.mark.parametrize("cookie", ["", "env -i "])
def test_processes_that_leave_their_session_are_killed_when_the_job_ends(
    server: PilotServer, pilot: Start, tmp_path: Path, cookie: str
) -> None:
    server.enrol.update(processors=2)
    go = tmp_path / "go"
    other = shell(
        server,
        f"(setsid sh -c 'echo $$ > {tmp_path}/kept; exec sleep 60' &); "
        f"while [ ! -e {go} ]; do sleep 0.05; done; kill -0 $(cat {tmp_path}/kept)",
    )
    script = f"echo $$ > {tmp_path}/run; exec sleep 60"
    job = shell(
        server,
        f"sleep 0.3; (setsid {cookie}setsid -f sh -c '{script}' &); while [ ! -s {tmp_path}/run ]; do :; done",
    )
    process = pilot("--processors", "2")
    assert server.finish_of(job)["exit_code"] == 0
    if not cookie:
        assert not alive(int((tmp_path / "run").read_text()))
    go.touch()
    assert server.finish_of(other)["exit_code"] == 0  # its own runaway was spared until now
    assert process.wait() == 0
    assert not alive(int((tmp_path / "run").read_text()))
    assert not alive(int((tmp_path / "kept").read_text()))


def test_exit_codes_are_those_of_a_shell(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo no interpreter named\n")
    absent, closed = server.add("no-such-program"), server.add(str(plain))
    plain.chmod(0o644)
    digest = server.add_input(b"echo by sh\n")
    script = server.add("run", inputs=[{"name": "run", "mode": "copy", "source": digest}])
    killed = shell(server, "kill -9 $$")
    setup = server.add("no-such-program", setup_lines=["true"])
    pilot()
    assert (server.finish_of(absent)["exit_code"], server.finish_of(absent)["failure"]) == (127, "")
    assert server.finish_of(closed)["exit_code"] == 126
    assert out(server.finish_of(script)) == "by sh\n"
    assert server.finish_of(killed)["signal"] == 9
    assert server.finish_of(setup)["exit_code"] == 127


def test_inputs(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("shared\n")
    digest = server.add_input(b"copied\n")
    inputs = [
        {"name": "deep/copy", "mode": "copy", "source": digest},
        {"name": "link", "mode": "shared", "source": str(shared)},
        {"name": "url", "mode": "url", "source": shared.as_uri()},
    ]
    jobs = [shell(server, "cat deep/copy link url; echo more >> deep/copy", inputs=inputs) for _ in range(5)]
    wrong = [
        (shell(server, "true", inputs=[{"name": "x", "mode": "shared", "source": "/no/such"}]), "node"),
        (shell(server, "true", inputs=[{"name": "../x", "mode": "shared", "source": str(shared)}]), "input"),
        (shell(server, "true", inputs=[{"name": "x", "mode": "copy", "source": "0" * 64}]), "input"),
        (shell(server, "true", inputs=[{"name": "x", "mode": "url", "source": "file:///no/such"}]), "input"),
        (shell(server, "true", container="image.sif"), "node"),
    ]
    server.inputs["1" * 64] = b"not that digest"
    wrong.append((shell(server, "true", inputs=[{"name": "x", "mode": "copy", "source": "1" * 64}]), "input"))
    process = pilot()
    for job in jobs:
        assert out(server.finish_of(job)) == "copied\nshared\nshared\n"
    assert server.downloads.count(digest) == 1
    for job, failure in wrong:
        assert server.finish_of(job)["failure"] == failure, job
    assert process.wait() == 0


def test_outputs_and_the_link_trick(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    script = (
        f"mkdir -p d/e; echo 1 > a.txt; echo 2 > d/e/b; ln -s {outside}/secret c.txt; ln -s {outside} d/out;"
        "mkfifo pipe.txt; head -c 10000 /dev/zero; chmod 0 d/e; chmod 700 d/e"
    )
    job = shell(server, script, outputs=["*.txt", "d", "none-*", "../x"], std_output="my.out")
    process = pilot()
    finish = server.finish_of(job)
    assert sorted(finish["outputs"]) == ["a.txt", "d/e/b", "my.out"]
    assert finish["missing"] == ["none-*", "../x"]
    told = {refused["name"]: refused["reason"] for refused in finish["refused"]}
    assert told.keys() == {"c.txt", "d/out", "pipe.txt"}
    assert "leads out of the folder" in told["c.txt"]
    assert told["pipe.txt"] == "a FIFO, not a regular file"
    assert finish["stdout"] is None
    assert server.uploads[(job, 1, "my.out")] == bytes(10000)
    assert server.uploads[(job, 1, "d/e/b")] == b"2\n"
    assert process.wait() == 0


def test_links_around_the_folder_end_with_the_job(server: PilotServer, pilot: Start) -> None:
    """Each of these patterns once followed the links for ever, and kept the pilot from everything else."""
    script = "ln -s . a; ln -s . b; ln -s / root; mkdir d; ln -s .. d/up; echo kept > d/file"
    job = shell(server, script, outputs=["**", "**/x", "a/**/b/**/file", "root/**", "d"], wall_time=30)
    after = shell(server, "echo after")
    process = pilot()
    finish = server.finish_of(job)
    assert sorted(finish["outputs"]) == ["d/file", "stderr", "stdout"]
    assert finish["missing"] == ["**/x", "a/**/b/**/file", "root/**"]
    assert {refused["name"] for refused in finish["refused"]} == {"a", "b", "root", "d/up"}
    assert (finish["exit_code"], finish["failure"]) == (0, "")
    assert out(server.finish_of(after)) == "after\n"
    assert process.wait() == 0


def test_odd_outputs_are_told_one_by_one_and_the_payload_runs_once(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    server.enrol.update(max_output_file=1_000_000)
    server.refused_uploads.update({"refused": 422, "large": 413, "unknown": 404})
    runs = tmp_path / "runs"
    script = (
        f"echo run >> {runs}; touch \"$(printf 'a\\377')\" \"$(printf 'a\\nb')\" good refused unknown; "
        "truncate -s 1T sparse; head -c 900000 /dev/zero > large; mkfifo pipe; mkdir -p $(seq -s / 1 150)"
    )
    job = shell(server, script, outputs=["*"])
    process = pilot()
    finish = server.finish_of(job)
    told = {refused["name"]: refused["reason"] for refused in finish["refused"]}
    # Standard output and error match * too.
    assert sorted(finish["outputs"]) == ["good", "stderr", "stdout"]
    assert told.pop("/".join(map(str, range(1, 102)))[:200]).startswith("more than 100 folders")
    assert told == {
        "a\\xff": "its name has characters that are not UTF-8, or control characters",
        "a\\nb": "its name has characters that are not UTF-8, or control characters",
        "pipe": "a FIFO, not a regular file",
        "sparse": "it has 1,099,511,627,776 bytes: at most 1,000,000 are accepted",
        "refused": "no such name here",
        "unknown": "no such name here",
        "large": "too large for us",
    }
    assert (finish["exit_code"], finish["failure"], finish["missing"]) == (0, "", [])
    assert process.wait() == 0
    assert runs.read_text() == "run\n"


def test_names_of_standard_output_that_cannot_be_are_the_jobs_own_fault(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "in").write_text("precious")
    inputs = [
        {"name": "link", "mode": "shared", "source": str(shared)},
        {"name": "in", "mode": "shared", "source": str(shared / "in")},
    ]
    (tmp_path / "mine").write_text("precious")
    names = ["..", "../x", str(tmp_path / "mine"), "link/out", "link/in", "in", "link", "x" * 300, "a\0b"]
    jobs = [shell(server, "echo", std_output=name, inputs=inputs) for name in names]
    jobs += [shell(server, "echo", std_error=name, inputs=inputs) for name in names]
    below = [{"name": "link/below", "mode": "copy", "source": server.add_input(b"x")}]
    outside = shell(server, "true", inputs=[*inputs, *below])
    process = pilot()
    for job in jobs:
        finish = server.finish_of(job)
        assert (finish["failure"], finish["exit_code"]) == ("", 126), finish
        assert "standard output or error" in finish["message"]
    assert server.finish_of(outside)["failure"] == "input"
    assert process.wait() == 0
    assert [path.name for path in shared.iterdir()] == ["in"]
    assert (shared / "in").read_text() == (tmp_path / "mine").read_text() == "precious"


def test_both_streams_in_one_file_keep_their_order(server: PilotServer, pilot: Start) -> None:
    script = "echo 1; echo 2 >&2; echo 3; echo 4 >&2"
    small = shell(server, script, std_output="all", std_error="./all")
    large = shell(server, f"{script}; head -c 5000 /dev/zero >&2", std_output="all", std_error="all")
    process = pilot()
    assert out(server.finish_of(small)) == "1\n2\n3\n4\n"
    assert server.finish_of(small)["stderr"] == ""
    assert server.finish_of(large)["outputs"] == ["all"]
    assert server.uploads[(large, 1, "all")] == b"1\n2\n3\n4\n" + bytes(5000)
    assert process.wait() == 0


def test_a_killed_job_sends_what_it_wrote_so_far(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    server.enrol.update(processors=3)
    tells = "trap 'echo asked to end; exit 1' TERM; echo begun; echo trouble >&2; touch {}; sleep 60 & wait"
    killed = shell(server, tells.format(tmp_path / "1"))
    one = shell(server, f"head -c 20000 /dev/zero; {tells.format(tmp_path / '2')}", std_error="stdout")
    lost = shell(server, tells.format(tmp_path / "3"))
    process = pilot("--processors", "3")
    until(lambda: all((tmp_path / name).exists() for name in "123"))
    server.killed = {killed, one}
    server.stop = {killed, one, lost}
    server.wait_for(lambda: len(server.uploads) == 3)
    assert process.wait() == 0
    assert server.uploads == {
        (killed, 1, "stdout"): b"begun\nasked to end\n",
        (killed, 1, "stderr"): b"trouble\n",
        (one, 1, "stdout"): bytes(20000) + b"begun\ntrouble\nasked to end\n",
    }
    assert server.finishes == {}


def test_folders_that_cannot_be_entered_are_removed_too(server: PilotServer, pilot: Start) -> None:
    job = shell(server, "mkdir -p x/y; touch x/y/z; chmod 0 x/y x")
    process = pilot()
    assert server.finish_of(job)["exit_code"] == 0
    assert process.wait() == 0  # the fixture looks at what is left


def test_a_folder_is_used_again_only_if_it_is_as_a_new_one(server: PilotServer, pilot: Start) -> None:
    tells = "basename $PWD; ls -A . $TMPDIR; echo error >&2; "
    clean, again = (shell(server, tells) for _ in range(2))
    dirty = shell(server, tells + "touch left")
    after = shell(server, tells + "(sleep 60 >/dev/null 2>&1 &)")
    last = shell(server, tells)
    process = pilot()
    found = [out(server.finish_of(job)).split() for job in (clean, again, dirty, after, last)]
    assert [one[0] for one in found[:3]] == ["payload-1"] * 3
    assert found[3][0] == "payload-2"
    # Nobody sees anything but the files of standard output and error.
    assert all(one[1:] == found[0][1:] for one in found[:3])
    assert not any("left" in one for one in found)
    assert process.wait() == 0  # the fixture looks at what is left


def test_environment_and_setup(server: PilotServer, pilot: Start) -> None:
    script = (
        'echo "$HELLO|$PILOTAGE_JOB|$PILOTAGE_EPOCH|$OMP_NUM_THREADS|$1|${TMPDIR##*/}|$PILOTAGE_LOG_LEVEL"; pwd;'
        " [ -d $TMPDIR ]"
    )
    job = server.add(
        "sh",
        "-c",
        script,
        "sh",
        "$(id);",
        setup_lines=["export HELLO=setup"],
        environment={"PILOTAGE_JOB": "9"},
        log_level="DEBUG",
    )
    process = pilot()
    finish = server.finish_of(job)
    assert out(finish).splitlines()[0] == f"setup|{job}|1|1|$(id);|payload-1.tmp|DEBUG"
    assert out(finish).splitlines()[1].endswith("/payload-1")
    assert finish["exit_code"] == 0
    assert process.wait() == 0
