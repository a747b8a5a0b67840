"""Isolated payloads behave as other payloads do, and see only their own and declared files."""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.pilot.isolation.root_folder import VisiblePath, is_visible, parse_visible
from tests.deadlines import PATIENCE
from tests.pilot.pilot_server import BEGUN, PilotProcess, PilotServer, alive, children, until

pytestmark = pytest.mark.slow

Start = Callable[..., PilotProcess]
PYTHON = "/usr/bin/python3"


@pytest.fixture
def isolating(server: PilotServer) -> PilotServer:
    server.enrol.update(isolation="require")
    return server


def shell(server: PilotServer, script: str, **fields: object) -> int:
    return server.add("sh", "-c", script, **fields)


def out(finish: dict[str, Any]) -> str:
    return base64.b64decode(finish["stdout"]).decode()


def err(finish: dict[str, Any]) -> str:
    return base64.b64decode(finish["stderr"]).decode()


def test_results_are_those_of_a_payload_without_isolation(isolating: PilotServer, pilot: Start) -> None:
    plain = shell(isolating, "pwd; echo err >&2; echo data > made; exit 7", outputs=["made"])
    signalled = shell(isolating, "kill -9 $$")
    missing = isolating.add("no-such-program")
    forbidden = isolating.add("/etc/passwd")
    script = isolating.add(
        "script", inputs=[{"name": "script", "mode": "copy", "source": isolating.add_input(b"echo $1")}]
    )
    process = pilot()
    finish = isolating.finish_of(plain)
    assert (finish["exit_code"], finish["failure"], err(finish)) == (7, "", "err\n"), finish["message"]
    assert out(finish).startswith(str(process.workdir)), "the folder keeps its path"
    assert isolating.uploads[plain, 1, "made"] == b"data\n"
    assert isolating.finish_of(signalled)["signal"] == 9
    assert isolating.finish_of(missing)["exit_code"] == 127
    assert "command not found" in isolating.finish_of(missing)["message"]
    assert isolating.finish_of(forbidden)["exit_code"] == 126
    assert isolating.finish_of(script)["exit_code"] == 0
    assert process.wait() == 0
    nodes = [exchange["take"]["node"] for exchange in isolating.exchanges if exchange["take"]]
    [node] = {json.dumps({**node, "disk": 0}) for node in nodes}  # other programs fill and free the disk
    assert json.loads(node)["isolation"] == "userns"
    assert "isolated" in json.loads(node)["tags"]


def test_only_the_payloads_own_processes_and_files_are_there(
    isolating: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another")
    look = (
        "import json, os; print(json.dumps([sorted(n for n in os.listdir('/proc') if n.isdigit()),"
        f" os.path.exists({str(secret)!r}), os.path.exists(os.environ['HOME']), os.listdir('/tmp'),"
        " os.access('/usr', os.W_OK), os.path.exists('/run'), os.path.exists('/proc/1/root/usr')]))"
    )
    job = isolating.add(PYTHON, "-c", look)
    pilot()
    processes, sees_secret, has_home, _, writes_usr, sees_run, enters_init = json.loads(
        out(isolating.finish_of(job))
    )
    assert processes == ["1", "2"]
    assert has_home
    assert [sees_secret, writes_usr, sees_run, enters_init] == [False] * 4


def _open_to_payloads(path: Path) -> None:
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/") and not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o011)
    path.chmod(0o755)


@pytest.fixture(params=["disk", "memory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of the site, also in the node's /dev, of which payloads have another one."""
    if request.param == "disk":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


def test_declared_paths_are_visible_as_declared(
    isolating: PilotServer, pilot: Start, shared: Path, tmp_path: Path
) -> None:
    for name in ("data", "pool"):
        (shared / name).mkdir(mode=0o777)
        (shared / name).chmod(0o777)
    (shared / "data/file").write_text("shared")
    _open_to_payloads(shared)
    isolating.enrol.update(visible=[f"{shared}/data", f"{shared}/pool:rw", "/no/such/path"])
    data = {"name": "in", "mode": "shared", "source": f"{shared}/data/file"}
    job = shell(isolating, f"cat in; echo x > {shared}/pool/made; echo x > {shared}/data/made", inputs=[data])
    hidden = shell(isolating, "cat in", inputs=[{**data, "source": f"{tmp_path}/pilot.log"}])
    fetched = shell(isolating, "cat in", inputs=[{**data, "mode": "url", "source": "file:///etc/passwd"}])
    devices = shell(isolating, "echo x > /dev/null; echo x > /dev/shm/x; head -c 4 /dev/urandom | wc -c")
    pilot()
    finish = isolating.finish_of(job)
    assert out(finish) == "shared"
    assert "Read-only" in err(finish)
    assert (shared / "pool/made").read_text() == "x\n"
    assert not (shared / "data/made").exists()
    assert "do not see" in isolating.finish_of(hidden)["message"]
    assert isolating.finish_of(fetched)["failure"] == "input"
    used = isolating.finish_of(devices)
    assert (out(used), err(used)) == ("4\n", "")


@pytest.mark.parametrize("folder", ["/", "/proc/self", "/dev", "link"])
def test_a_job_in_place_does_not_see_the_root_processes_or_devices_of_the_node(
    isolating: PilotServer, pilot: Start, tmp_path: Path, folder: str
) -> None:
    _open_to_payloads(tmp_path)
    (tmp_path / "link").symlink_to("/")
    place = str(tmp_path / folder)
    job = shell(isolating, "ls /proc", folder=place, folder_mark="")
    again = shell(isolating, "echo still here")
    pilot()
    finish = isolating.finish_of(job)
    assert (finish["exit_code"], finish["message"]) == (126, f"an isolated job cannot run in {place}")
    assert out(isolating.finish_of(again)) == "still here\n"


def test_limits_and_use_count_all_processes(isolating: PilotServer, pilot: Start) -> None:
    isolating.enrol.update(processors=4)
    hog = f"{PYTHON} -c 'import time; x = bytearray(150_000_000); time.sleep(60)'"
    wall = shell(isolating, "echo before; sleep 600 & wait", wall_time=BEGUN)
    memory = shell(isolating, f"echo before; {hog} & wait", memory=50)
    spread = shell(isolating, "(while :; do :; done) & (while :; do :; done) & wait", cpu_time=1.0)
    spin = "import time\nwhile time.process_time() < 0.4: pass"
    used = shell(isolating, f"setsid {PYTHON} -c '{spin}'", memory=50)
    pilot("--processors", "4", "--memory", "4000")
    assert isolating.finish_of(wall)["failure"] == "limit-wall"
    assert isolating.finish_of(memory)["failure"] == "limit-memory"
    assert isolating.finish_of(spread)["failure"] == "limit-cpu"
    assert out(isolating.finishes[wall]) == out(isolating.finishes[memory]) == "before\n"
    finish = isolating.finish_of(used)
    assert finish["failure"] == ""
    assert 0.4 <= finish["cpu"] < 5
    assert finish["max_rss"] < 50


def test_signals_reach_the_payload(isolating: PilotServer, pilot: Start) -> None:
    polite = shell(isolating, "trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done", wall_time=BEGUN)
    deaf = shell(isolating, "trap '' TERM; while :; do sleep 1; done", wall_time=BEGUN)
    isolating.enrol.update(processors=2)
    pilot("--processors", "2")
    finish = isolating.finish_of(polite)
    assert (out(finish), finish["exit_code"], finish["failure"]) == ("asked\n", 3, "limit-wall")
    assert isolating.finish_of(deaf)["signal"] == 9


def test_the_warning_before_the_end_reaches_the_payload(isolating: PilotServer, pilot: Start) -> None:
    script = "trap 'echo warned; exit 4' USR1; while :; do sleep 0.05; done"
    job = shell(isolating, script, wall_time=60.0, warn=60.0 - BEGUN)
    pilot()
    finish = isolating.finish_of(job)
    assert (out(finish), finish["exit_code"], finish["failure"]) == ("warned\n", 4, "")


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_pilot_whose_launcher_died_takes_no_more_jobs(
    isolating: PilotServer, pilot: Start, tmp_path: Path, ahead: int
) -> None:
    """It would fail every job of the pool otherwise, and all jobs that it took ahead."""
    go = tmp_path / "visible/go"
    go.parent.mkdir(mode=0o755)
    _open_to_payloads(tmp_path)
    first = shell(isolating, f"until [ -e {go} ]; do sleep 0.05; done")
    isolating.enrol.update(processors=2, ahead=ahead, visible=[str(go.parent)])
    process = pilot("--processors", "2")
    isolating.wait_for(lambda: isolating.state[first] == "held")
    until(lambda: len(children(process.pilot_proper)) == 2, PATIENCE)
    launcher = min(children(process.pilot_proper))
    os.kill(launcher, 9)
    lost = [shell(isolating, "true") for _ in range(3)]
    isolating.wait_for(lambda: any(job in isolating.finishes for job in lost), PATIENCE)
    go.touch()
    assert process.wait(PATIENCE) == 0
    failed = [job for job in lost if job in isolating.finishes]
    assert len(failed) == 1
    assert isolating.finishes[failed[0]]["failure"] == "node"
    assert isolating.finish_of(first)["exit_code"] == 0, "the running one goes on"
    assert "cannot isolate payloads" in isolating.left


def test_daemons_and_fork_bombs_end_with_the_job(
    isolating: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    mark = f"{os.getpid()}.25"
    daemon = shell(
        isolating, f"setsid setsid sleep {mark} & env -i setsid sh -c 'sleep {mark} &' ; sleep 0.2"
    )
    bomb = shell(
        isolating,
        "i=0; while [ $i -lt 60 ]; do (while :; do sleep 0.01; done) & i=$((i+1)); done; wait",
        wall_time=1.0,
    )
    pilot()
    assert isolating.finish_of(daemon)["exit_code"] == 0
    assert isolating.finish_of(bomb)["failure"] == "limit-wall"
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_killed_pilot_leaves_no_isolated_process(isolating: PilotServer, pilot: Start) -> None:
    mark = f"{os.getpid()}.75"
    job = shell(isolating, f"setsid sleep {mark} & sleep {mark}")
    process = pilot()
    isolating.wait_for(lambda: isolating.state[job] == "held")

    def sleepers() -> list[int]:
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if _bytes(path).startswith(b"sleep\0" + mark.encode())
        ]

    pids = until(lambda: len(sleepers()) == 2 and sleepers())
    os.kill(process.pilot_proper, 9)
    process.wait()
    until(lambda: not any(alive(pid) for pid in pids or ()))


@pytest.mark.parametrize(("mode", "code"), [("require", 7), ("userns", 0)])
def test_a_pilot_that_cannot_isolate_says_so(
    isolating: PilotServer, pilot: Start, workdir: Path, mode: str, code: int
) -> None:
    # A visible path that contains the work folders of pilots would show other payloads.
    isolating.enrol.update(isolation=mode, visible=[f"{workdir.parent}:rw"])
    job = shell(isolating, "true")
    process = pilot()
    assert process.wait() == code
    assert "cannot isolate payloads" in process.said()
    if mode == "require":
        assert job not in isolating.finishes
        assert isolating.exchanges[-1]["unfit"]
        assert "contains the work folders" in isolating.left
        assert not any(exchange["take"] for exchange in isolating.exchanges)
    else:
        assert isolating.finish_of(job)["exit_code"] == 0
        assert not any(
            exchange["take"] and exchange["take"]["node"]["isolation"] for exchange in isolating.exchanges
        )


def test_the_launcher_does_not_run_where_isolation_is_off(server: PilotServer, pilot: Start) -> None:
    job = shell(server, "sleep 60")
    process = pilot()
    server.wait_for(lambda: server.state[job] == "held")

    def family() -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if server.url.encode() in _bytes(path)]

    # A payload that is just being started has the pilot's arguments for a moment.
    until(lambda: len(family()) == 2)
    assert process.process.poll() is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data", VisiblePath("/data")),
        ("/data:ro", VisiblePath("/data")),
        ("/data:rw", VisiblePath("/data", True)),
        ("/odd:name", VisiblePath("/odd:name")),
    ],
)
def test_visible_paths_are_parsed(text: str, path: VisiblePath) -> None:
    assert parse_visible(text) == path


def test_links_do_not_make_a_path_visible(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown/link").symlink_to(tmp_path / "secret")
    shown = [VisiblePath(str(tmp_path / "shown"))]
    assert is_visible(str(tmp_path / "shown/file"), shown)
    assert not is_visible(str(tmp_path / "shown/link"), shown)
    assert not is_visible(str(tmp_path / "shown-too"), shown)
    assert is_visible(sys.executable, [VisiblePath(os.path.realpath(sys.executable))])
