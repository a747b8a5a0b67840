"""How jobs ended: what is named, which command comes next, which exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.cli.job_selection import selection_as_options
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.unit.cli.program import PROGRAM
from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]


def test_failed_jobs_are_named_with_the_next_command(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.jobs = {number: job(number, "Failed", reason="exit code 3") for number in range(1, 9)}
    state.jobs[9] = job(9)
    assert cli("wait", "-s", "1") == 1
    captured = capsys.readouterr()
    assert captured.out == "1 Done, 8 Failed\n"
    assert "job 1 is Failed: exit code 3" in captured.err
    assert "... and 3 more" in captured.err
    assert "pilotage logs --stderr 1" in captured.err
    assert "pilotage status -s 1" in captured.err
    assert cli("wait", "-s", "1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["not_done"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("words", [["wait", "-s", "1"], ["output", "-s", "1"]])
def test_a_missing_output_is_told_and_has_an_exit_code_of_its_own(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    told = "no file matches the output '*.rot'"
    state.jobs = {1: job(1), 2: job(2, outputs_incomplete=True, reason=told)}
    assert cli(*words) == 8
    err = capsys.readouterr().err
    assert f"job 2 lacks an output: {told}" in err
    assert "pilotage status 2" in err
    assert cli(*words, "--json") == 8
    assert json.loads(capsys.readouterr().out)["outputs_incomplete"] in (1, [2])
    state.jobs[3] = job(3, "Failed")
    assert cli(*words) == 1, "a job that is not Done is more"
    state.jobs = {1: job(1)}
    assert cli(*words) == 0


def test_submit_and_wait_tells_the_same(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.made = {"outputs_incomplete": True}
    assert cli("submit", "--wait", "--", "true") == 8
    assert "lacks an output" in capsys.readouterr().err
    state.made = {"state": "Failed"}
    assert cli("submit", "--wait", "--json", "--", "true") == 1
    assert json.loads(capsys.readouterr().out)["not_done"] == [2]


@pytest.mark.parametrize(
    "words",
    [["wait", "1-3"], ["submit", "--wait", "--", "true"], ["status", "--watch", "1-3"], ["logs", "-f", "1"]],
)
def test_ctrl_c_tells_that_the_jobs_go_on(fake: tuple[Path, State], words: list[str]) -> None:
    fake[1].jobs = {number: job(number, "Running") for number in (1, 2, 3)}
    fake[1].made, fake[1].logs = {"state": "Running"}, {1: b"began\n"}
    command = [sys.executable, "-u", "-c", PROGRAM, *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TERM": "dumb"},
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        while "Running" not in line and "began" not in line:
            line = process.stdout.readline()
            assert line
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(PATIENCE) == 130
    assert "continue" in said, said
    assert any(f"`pilotage {again}" in said for again in ("wait ", "logs -f", "status 1-3`")), said
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", ["status", "wait", "output", "kill", "reschedule", "delete"])
def test_an_unknown_submission(cli: Cli, state: State, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    state.jobs = {1: job(1)}
    for more in ([], ["--json"], *([["--events"], ["--state", "Failed"]] if verb == "status" else [])):
        assert cli(verb, "-s", "99", *more) == 4, more
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "no submission 99" in captured.err
    assert cli("status", "-s", "1", "--state", "Failed") == 0, "known, without such jobs"


def test_the_newest_first(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs, state.page = {number: job(number, "Running") for number in range(1, 8)}, 3

    def shown(*words: str) -> list[int]:
        assert cli("status", *words, "--json") == 0
        return [one["id"] for one in json.loads(capsys.readouterr().out)["jobs"]]

    assert shown("--limit", "2") == [7, 6]
    assert shown("-s", "1", "--limit", "0") == [7, 6, 5, 4, 3, 2, 1]
    assert shown("--oldest", "--limit", "2") == [1, 2]
    assert shown("2-4") == [2, 3, 4]


def test_selections_as_arguments() -> None:
    assert selection_as_options(Selection(ids=[3, 5, 4, 9])) == "3-5 9"
    assert (
        selection_as_options(Selection(submission=4, owner="a b"), "--state Failed")
        == "-s 4 --owner 'a b' --state Failed"
    )
    assert selection_as_options(Selection(ids=list(range(1, 999, 2)))).endswith("...")


@pytest.mark.parametrize(
    "narrowed", [["--name", "sim-*"], ["--name", "a", "--state", "Waiting"], ["5"], ["-s", "2"]]
)
def test_an_interrupted_watch_names_a_command_that_can_be_run(
    narrowed: list[str],
    cli: Cli,
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pilotage.cli.status._watch", interrupted)
    state.jobs = {5: job(5)}
    assert cli("status", "--watch", *narrowed) == 130
    said = capsys.readouterr().err
    command = said.partition("the jobs continue: `pilotage ")[2].partition("`")[0]
    assert shlex.split(command) == ["status", *narrowed], said
