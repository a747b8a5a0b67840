"""Every command in odd surroundings: a message and a documented exit code, never a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pilotage.cli.root import EXIT_CODES, INTERNAL, build
from pilotage.main.command_line import SERVER_COMMANDS
from tests import forked
from tests.deadlines import PATIENCE
from tests.unit.client.fake_server import State, job

NOWHERE = "postgresql://127.0.0.1:1/none"

WORDS: dict[str, list[list[str]]] = {
    "submit": [["submit", "--", "true"], ["submit", "--dry-run", "job.yaml"], ["submit", "nothing.jdl"]],
    "status": [["status"], ["status", "-s", "1", "--limit", "0"], ["status", "1"], ["status", "--json"]],
    "why": [["why", "1"], ["why", "request:1"], ["why", "element:x"]],
    "match-ce": [
        ["match-ce", "1"],
        ["match-ce", "job.yaml", "--ad", "job.yaml"],
        ["match-ce", "nothing.jdl"],
    ],
    "ce ad": [["ce", "ad", "local"], ["ce", "ad", "job.yaml"], ["ce", "ad", "-"]],
    "job ad": [["job", "ad", "1"], ["job", "ad", "nothing.jdl"]],
    "wait": [["wait", "1"]],
    "output": [["output", "1", "--dir", "out"]],
    "logs": [["logs", "1"]],
    "kill": [["kill", "1"]],
    "submission list": [["submission", "list"]],
    "submission show": [["submission", "show", "1"]],
    "submission kill": [["submission", "kill", "1", "-y"]],
    "submission hold": [["submission", "hold", "1"]],
    "submission release": [["submission", "release", "1"]],
    "submission priority": [["submission", "priority", "1", "3"], ["submission", "priority", "1", "x"]],
    "submission parallel": [["submission", "parallel", "1", "3"]],
    "hold": [["hold", "1"]],
    "release": [["release", "1"]],
    "priority": [["priority", "1", "5"], ["priority", "5"], ["priority", "1", "11"]],
    "reschedule": [["reschedule", "1"]],
    "rerun": [["rerun", "1"], ["rerun", "-s", "1", "--failed"]],
    "delete": [["delete", "1", "-y"]],
    "queue list": [["queue", "list"]],
    "queue history": [["queue", "history"], ["queue", "history", "--since", "x", "--group", "g"]],
    "pilot list": [["pilot", "list"]],
    "pilot show": [["pilot", "show", "1"]],
    "pilot logs": [["pilot", "logs", "1"]],
    "pilot kill": [["pilot", "kill", "1"], ["pilot", "kill"]],
    "site list": [["site", "list"]],
    "site show": [["site", "show", "here"]],
    "site import": [["site", "import", "nothing.xml"], ["site", "import", "job.yaml"]],
    "site drain": [["site", "drain", "here"], ["site", "drain", "here", "--until", "soon"]],
    "site down": [["site", "down", "here"]],
    "site enable": [["site", "enable", "here"]],
    "request submit": [["request", "submit", "nothing.toml"], ["request", "submit", "/nonexist/x"]],
    "request list": [["request", "list"], ["request", "list", "--state", "x"]],
    "request show": [["request", "show", "1"]],
    "request why": [["request", "why", "1"]],
    "request elements": [["request", "elements", "1"], ["request", "elements", "1", "--stuck", "x"]],
    "request history": [["request", "history", "1"]],
    "request wait": [["request", "wait", "1", "--timeout", "soon"]],
    "request approve": [["request", "approve", "1"]],
    "request reject": [["request", "reject", "1"]],
    "request assign": [["request", "assign", "1", "--team", "t"]],
    "request priority": [["request", "priority", "1", "5"]],
    "request sites": [["request", "sites", "1", "--sites", "a,b"]],
    "request abort": [["request", "abort", "1"]],
    "request force-complete": [["request", "force-complete", "1"]],
    "request clone": [["request", "clone", "1"]],
    "request resubmit": [["request", "resubmit", "1"]],
    "request pause": [["request", "pause", "1"]],
    "request resume": [["request", "resume", "1"]],
    "request close-out": [["request", "close-out", "1"]],
    "request announce": [["request", "announce", "1"]],
    "request archive": [
        ["request", "archive", "1"],
        ["request", "archive"],
        ["request", "archive", "1", "--name", "x"],
    ],
    "agent list": [["agent", "list"]],
    "agent show": [["agent", "show", "a"]],
    "agent drain": [["agent", "drain", "a"]],
    "agent enable": [["agent", "enable", "a"]],
    "agent remove": [["agent", "remove", "a"]],
    "dataset add": [["dataset", "add", "/x", "nothing.toml"], ["dataset", "add", "/x", "/nonexist/x"]],
    "catalogue list": [["catalogue", "list"]],
    "catalogue show": [["catalogue", "show", "rucio"]],
    "catalogue test": [["catalogue", "test", "rucio"]],
    "storage list": [["storage", "list"]],
    "issuer list": [["issuer", "list"]],
    "issuer test": [["issuer", "test", "a"]],
    "storage test": [["storage", "test", "results"]],
    "storage unclaimed": [["storage", "unclaimed", "results"]],
    "dataset follow": [["dataset", "follow", "rucio:s:x"]],
    "dataset list": [["dataset", "list"]],
    "dataset show": [["dataset", "show", "/x"]],
    "dataset replicas": [["dataset", "replicas", "/x"]],
    "dataset files": [["dataset", "files", "/x"]],
    "dataset close": [["dataset", "close", "/x"]],
    "dataset remove": [["dataset", "remove", "/x"]],
    "agent": [["agent", "--team", "t"], ["agent"]],
    "ce login": [["ce", "login"], ["ce", "login", "nowhere"], ["ce", "login", "--reach", "x"]],
    "ce add": [["ce", "add", "local"], ["ce", "add", "slurm", "--dry-run"]],
    "ce list": [["ce", "list"]],
    "ce show": [["ce", "show", "local"]],
    "ce jobs": [["ce", "jobs", "local"]],
    "ce test": [["ce", "test", "local"], ["ce", "test", "local", "--timeout", "soon"]],
    "ce enable": [["ce", "enable", "local"]],
    "ce disable": [["ce", "disable", "local"]],
    "cost": [["cost"], ["cost", "--since", "yesterday"]],
    "audit": [["audit"], ["audit", "--since", "yesterday"], ["audit", "--csv"]],
    "plugins": [["plugins"], ["plugins", "--all", "--json"], ["plugins", "extra"]],
    "completion": [["completion", "bash"], ["completion", "words", "--", "why", ""], ["completion", "csh"]],
    "report": [
        ["report", "1"],
        ["report", "request:1"],
        ["report", "x"],
        ["report", "--month", "2026-11", "--html", "/nonexist/x"],
    ],
    "server duties": [["server", "duties"]],
    "director": [["director", "--explain"], ["director"]],
    "ban": [["ban", "bob"], ["ban"]],
    "ban list": [["ban", "list"]],
    "unban": [["unban", "bob"]],
    "trace": [["trace", "--batch-id", "7"], ["trace"]],
    "share list": [["share", "list"]],
    "share history": [["share", "history"], ["share", "history", "--points", "0"]],
    "fairness check": [["fairness", "check"]],
    "accounting export": [
        ["accounting", "export"],
        ["accounting", "export", "--format", "apel", "--benchmark", "hepscore23=1"],
        ["accounting", "export", "--format", "auditor", "-o", "/nonexist/x"],
    ],
    "policy show": [["policy", "show"]],
    "policy init": [["policy", "init"]],
    "policy preset": [["policy", "preset", "dirac"], ["policy", "preset", "nothing"]],
    "policy check": [["policy", "check", "nothing.toml"], ["policy", "check", "/nonexist/x"]],
    "policy diff": [["policy", "diff"]],
    "policy apply": [["policy", "apply", "nothing.toml"]],
    "policy history": [["policy", "history"]],
    "policy rollback": [["policy", "rollback", "1"]],
    "policy import": [["policy", "import", "nothing.cfg"]],
    "twin record": [["twin", "record", "--out", "/nonexist/x"]],
    "twin run": [["twin", "run", "--trace", "nothing.swf", "--out", "/nonexist/x"]],
    "twin replay": [["twin", "replay", "nothing.record"], ["twin", "replay", "job.yaml"]],
    "twin policy": [["twin", "policy", "--trace", "nothing.swf"]],
    "token create": [["token", "create", "ada"], ["token", "create", "ada", "--out", "/nonexist/x"]],
    "token show": [["token", "show"]],
    "token list": [["token", "list"]],
    "token revoke": [["token", "revoke", "1"], ["token", "revoke"]],
    "token rotate-key": [["token", "rotate-key"]],
    "dirac-commands": [["dirac-commands", "commands"], ["dirac-commands", "job.yaml"]],
    "slurm-commands": [["slurm-commands", "commands"], ["slurm-commands", "job.yaml"]],
    "login": [["login", "http://127.0.0.1:1"], ["login", "https://127.0.0.1:1", "--ca", "nothing.pem"]],
    "logout": [["logout", "--home", "/nonexist/x"]],
    "server certificate show": [["server", "certificate", "show"], ["server"], ["server", "certificate"]],
    "server certificate rotate": [["server", "certificate", "rotate"]],
    "server certificate use": [["server", "certificate", "use", "nothing.pem"]],
    "down": [["down", "--timeout", "0s"]],
    "whoami": [["whoami"]],
    "web": [["web", "--no-open"], ["web", "--json"]],
    "version": [["version"], ["--version"], ["--help"], [], ["nonsense"], ["status", "--help"]],
    "up": [["up", "--database-url", NOWHERE]],
    "home adopt": [["home", "adopt"]],
    "db backup": [["db", "backup", "/nonexist/x"], ["db", "backup", "b"]],
    "db check": [["db", "check"]],
    "db upgrade": [["db", "upgrade", "--database-url", NOWHERE]],
    "db restore": [["db", "restore", "/nonexist/x"], ["db", "restore", "."]],
}

PROGRAM = str(Path(__file__).with_name("odd_surroundings.py"))
EVERY_ONE = slice(None)
FINE = {code for code, _ in EXIT_CODES} - {INTERNAL}
SPOILT = ("Traceback", "internal error", "Exception ignored", "report it")


def run_program(
    words: Sequence[str], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program in a fork that has Pilotage imported, unless its surroundings need a new interpreter."""
    interpreter = {name: value for name, value in os.environ.items() if name.startswith(forked.STARTED_WITH)}
    if not any(name.startswith(forked.STARTED_WITH) for name in environment):
        return forked.run(words, environment=interpreter | environment, folder=folder, timeout=12 * PATIENCE)
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=12 * PATIENCE,
        check=False,
    )


def checked(
    tmp_path: Path,
    home: Path,
    streams: str = "",
    more: dict[str, str] | None = None,
    only: Sequence[str] = tuple(WORDS),
    part: slice = EVERY_ONE,
) -> None:
    """Run these commands, in a process that has all modules loaded, and look at what they leave.

    `part`: of the command lines, in the order of `WORDS`.
    """
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    if streams != "no folder":
        (work / "job.yaml").write_text("executable: true\n")
    commands = [words for name in only for words in WORDS[name]][part]
    if streams == "odd words":
        commands = [[*words, "caf\xe9\xff"] for words in commands if words and words[0] != "up"]
        commands += [["status", "--name", "\xff"], ["submit", "--", "echo", "\xff"], ["submit", "\xff.jdl"]]
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    told = tmp_path / "told"
    environment = {**keep, "PILOTAGE_HOME": str(home), **(more or {})}
    words = [PROGRAM, streams, json.dumps(commands), str(tmp_path / "stderr"), str(told)]
    done = run_program(words, environment, work)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in told.read_text().splitlines()]
    assert len(seen) == len(commands), done.stderr
    wrong = [one for one in seen if one[1] not in FINE or any(word in one[2] for word in SPOILT)]
    assert not wrong, "\n".join(map(str, wrong[:5]))


def test_all_commands_are_tried() -> None:
    assert set(WORDS) == set(build(SERVER_COMMANDS).commands)


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS: list[tuple[str, dict[str, str]]] = [
    ("", C_LOCALE | {"TERM": "", "COLUMNS": "0", "LINES": "0"}),
    ("no stdout", {"COLUMNS": "many", "NO_COLOR": "1", "FORCE_COLOR": "1"}),
    ("no streams", {"HOME": "/nonexist", "TMPDIR": "/nonexist"}),
    ("full", {"PYTHONIOENCODING": "latin-1"}),
    ("reader gone", {"LC_ALL": "nowhere", "PYTHONUTF8": "0", "TERM": "dumb", "COLUMNS": "-5"}),
    ("few files", {}),
    ("no folder", {"HOME": ""}),
    ("odd words", {}),
]
"""What is independent of each other is tried together: streams, and variables of the environment."""

OF_HOME = ("status", "down", "version", "up", "db backup", "db check", "db upgrade", "db restore")

HOMES = {
    "a file": "",
    "in a file": "no stdout",
    "read-only": "full",
    "too long": "",
    "empty": "reader gone",
    "of folders": "",
    "a loop": "no streams",
    "of garbage": "",
}


def spoil(home: Path, kind: str) -> Path:
    """Make a home of that kind; where it is."""
    if kind == "a file":
        home.write_text("")
    elif kind == "in a file":
        home.write_text("")
        return home / "home"
    elif kind == "read-only":
        return Path("/proc/self/task/pilotage")
    elif kind == "too long":
        return home.with_name("x" * 300)
    elif kind == "a loop":
        home.symlink_to(home)
    else:
        home.mkdir()
    if kind == "of folders":
        for name in ("server.json", "token", "instance.json", "lock", "pilotage.db", "secrets"):
            (home / name).mkdir()
    elif kind == "of garbage":
        for name in ("instance.json", "token", "pilotage.db", "lock"):
            (home / name).write_bytes(b"\xff\x00{")
        (home / "server.json").write_text('{"url": "http://127.0.0.1:1", "pid": "x"}')
    return home


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
@pytest.mark.parametrize("place", range(len(SURROUNDINGS)))
def test_all_commands_in_odd_surroundings(fake: tuple[Path, State], tmp_path: Path, place: int) -> None:
    """Each command line in two or three of the eight; in all of them at night, by `./test --long`."""
    streams, more = SURROUNDINGS[place]
    part = EVERY_ONE if os.environ.get("PILOTAGE_ALL_SURROUNDINGS") else slice(place % 3, None, 3)
    fake[1].jobs = {number: job(number, name="\u00e9\u4e2d") for number in range(1, 2001)}
    fake[1].outputs, fake[1].logs = {1: {"a": b"1"}}, {1: b"x" * 20}
    checked(tmp_path, fake[0], streams, more, part=part)


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
@pytest.mark.parametrize("kind", list(HOMES))
def test_odd_homes(tmp_path: Path, kind: str) -> None:
    """The commands that come to the home by a way of their own; at night with one home all commands."""
    whole = kind == "a file" and bool(os.environ.get("PILOTAGE_ALL_SURROUNDINGS"))
    checked(tmp_path, spoil(tmp_path / "home", kind), HOMES[kind], only=tuple(WORDS) if whole else OF_HOME)


FEW = ("status", "up", "db backup", "version")


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["no streams", "full"])
def test_some_commands_in_odd_surroundings(fake: tuple[Path, State], tmp_path: Path, streams: str) -> None:
    fake[1].jobs = {number: job(number) for number in range(1, 2001)}
    checked(tmp_path, fake[0], streams, {"PILOTAGE_PATIENCE": "soon"}, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a file", "of folders"])
def test_some_commands_with_odd_homes(tmp_path: Path, kind: str) -> None:
    checked(tmp_path, spoil(tmp_path / "home", kind), "", C_LOCALE, FEW)


@pytest.mark.slow
def test_closed_streams_from_the_start(fake: tuple[Path, State], tmp_path: Path) -> None:
    """By a shell, as people do it: not as the harness imitates it."""
    fake[1].jobs = {number: job(number) for number in range(1, 3001)}
    program = f"{sys.executable} -m pilotage.main"
    for tail in (">&-", ">&- 2>&-", "<&- >&- 2>&-", "> /dev/full", "| head -1 >/dev/null"):
        done = subprocess.run(
            ["sh", "-c", f"{program} status -s 1 --limit 0 {tail}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert not any(word in done.stderr for word in SPOILT), (tail, done.stderr)
        assert done.returncode == (2 if "full" in tail else 0), (tail, done.stderr)


@pytest.mark.slow
def test_a_socket_is_never_a_stream(fake: tuple[Path, State], tmp_path: Path) -> None:
    """With a closed stdout the connection to the server would get number 1, and the table would be sent there."""
    fake[1].jobs = {1: job(1)}
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pilotage.main submit --wait -- true >&- 2>&-"], timeout=PATIENCE
    )
    assert done.returncode == 0
    assert fake[1].paths("POST") == ["/v1/submissions"]
