"""The root: exit codes, help, mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from pilotage.cli.root import LazyCommand, build, run
from pilotage.main.command_line import SERVER_COMMANDS
from tests.deadlines import PATIENCE
from tests.unit.cli.program import PROGRAM
from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["submti"], "did you mean submit or submission?"),
        (["token", "creat"], "did you mean create?"),
        (["xyzzy"], "see `pilotage --help`"),
        (["--colour"], "see `pilotage --help`"),
        (["status", "--stat", "Done"], "see `pilotage status --help`"),
        (["status", "--state", "runing"], "did you mean Running?"),
        (["status", "3-x"], "write ids as"),
        (["--home"], ""),
    ],
)
def test_mistakes(cli: Cli, capsys: pytest.CaptureFixture[str], words: list[str], hint: str) -> None:
    assert cli(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert hint in captured.err
    assert len(captured.err.splitlines()) <= 2


def test_groups_and_versions(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli() == 2
    assert cli("--help") == cli("help") == cli("token", "--help") == cli("help", "submit") == 0
    assert cli("token") == 2
    capsys.readouterr()
    assert cli("--version") == 0
    assert capsys.readouterr().out == f"pilotage {version('pilotage')}\n", "as the installed package"


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "invalid-input", 2), (401, "not-authenticated", 3), (403, "forbidden", 3), (404, "not-found", 4),
        (409, "conflict", 5), (409, "illegal-move", 5), (502, "unreachable", 6), (500, "error", 70),
    ],
)  # fmt: skip
def test_exit_codes(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], status: int, code: str, exit_code: int
) -> None:
    state.failures = [(status, {"code": code, "message": "the message\x1b]0;x", "hint": "the hint"})] * 30
    assert cli("whoami") == exit_code
    err = capsys.readouterr().err
    assert err.startswith("pilotage: the message")
    assert "hint: the hint" in err
    assert "\x1b" not in err


def test_with_json_errors_are_json(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.failures = [(409, {"code": "illegal-move", "message": "the message", "hint": "the hint"})] * 30
    for words, error in (
        (("whoami",), {"exit_code": 5, "code": "illegal-move", "message": "the message", "hint": "the hint"}),
        (("status", "3-x"), {"exit_code": 2, "code": "invalid-input"}),
        (
            ("status", "--colour"),
            {"exit_code": 2, "code": "invalid-input", "message": "No such option '--colour'"},
        ),
        (("submti",), {"exit_code": 2, "code": "invalid-input"}),
    ):
        for given in ((*words, "--json"), ("--json", *words)):
            assert cli(*given) == error["exit_code"]
            captured = capsys.readouterr()
            told = json.loads(captured.err)["error"]
            assert told.keys() == {"exit_code", "code", "message", "hint"}
            assert {name: told[name] for name in error} == error
            assert not captured.out


def test_a_busy_server(cli: Cli, state: State) -> None:
    state.failures = [(429, {"code": "overloaded", "message": "m", "retry_after": 99})]
    assert cli("whoami") == 7


@pytest.mark.slow
def test_no_server_and_a_broken_home(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("whoami") == 6
    assert "pilotage up" in capsys.readouterr().err
    (tmp_path / "home").mkdir()
    for content in ("{", "[]", '{"url": 3}', '{"url": "ftp://x"}'):
        (tmp_path / "home" / "server.json").write_text(content)
        assert cli("whoami") == 2
    (tmp_path / "home" / "server.json").write_text('{"url": "http://127.0.0.1:1", "pid": 4194311}')
    assert cli("whoami") == 6  # no token either, which only a server could give
    assert cli("--home", tmp_path / "other", "whoami") == 6
    assert cli("whoami", "--home", tmp_path / "other") == 6


def test_errors_inside(capsys: pytest.CaptureFixture[str]) -> None:
    tree = build(
        {"broken": LazyCommand("json", "loads", "Broken"), "gone": LazyCommand("no_such", "x", "Gone")}
    )
    assert run(tree, ["gone"]) == 70
    assert "--debug" in capsys.readouterr().err
    assert run(tree, ["gone", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_that_python_wraps_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 3.11 an interruption while an enumeration is made becomes a RuntimeError."""
    (tmp_path / "interrupted.py").write_text("raise RuntimeError('__set_name__') from KeyboardInterrupt()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(build({"broken": LazyCommand("interrupted", "x", "Broken")}), ["broken"]) == 130


@pytest.mark.slow
def test_a_reader_that_leaves(fake: tuple[Path, State]) -> None:
    fake[1].jobs = {number: job(number) for number in range(1, 4001)}
    command = [sys.executable, "-c", PROGRAM, "status", "--limit", "0", "-s", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_interrupted(fake: tuple[Path, State]) -> None:
    fake[1].jobs = {1: job(1, "Running")}
    command = [sys.executable, "-c", PROGRAM, "wait", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "1 Running" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert "Traceback" not in process.stderr.read()


def test_every_command_is_there(cli: Cli) -> None:
    for name in build().commands:
        assert cli(*name.split(), "--help") == 0


def test_a_command_with_verbs_takes_its_options_too() -> None:
    """`agent` runs an agent, `agent list` lists them."""
    done = subprocess.run(
        [sys.executable, "-m", "pilotage.main", "agent", "--team", "a", "--name", "x" * 300],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "--name: a name has" in done.stderr) == (2, True), done.stderr
    assert run(build(SERVER_COMMANDS), ["agent", "list", "--help"]) == 0
