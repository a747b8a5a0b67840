"""Commands against the fake server: what they print, and where."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pilotage.cli.console import CommandOutput
from pilotage.cli.status import _watch
from pilotage.wire.jobs import Counts, Selection
from tests.unit.client.fake_server import State, job

if TYPE_CHECKING:
    from pilotage.client import Client

Cli = Callable[..., int]


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    """Standard output as the one JSON document that it must be."""
    return json.loads(capsys.readouterr().out)


def test_submit_a_command(cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a=b").write_text("x")
    code = cli(
        "submit", "--json", "--name", "n", "--memory", "2GB", "--wall-time", "1h30m", "--env", "A=b=c",
        "-i", "data=in", "-i", "shared:/sw/x", "-i", "https://h/f.root?x=1", "-o", "*.root",
        "--param", "x=1,2", "--param", "y=a,b", "--site", "A,B", "--", "./run.sh", "--home", "%(x)s",
    )  # fmt: skip
    assert code == 0
    assert document(capsys)["submissions"][0]["count"] == 4
    request = next(iter(state.submissions.values()))["request"]
    assert request["parameters"] == {
        "names": ["x", "y"],
        "rows": [["1", "a"], ["1", "b"], ["2", "a"], ["2", "b"]],
    }
    description = request["description"]
    assert description["executable"] == "./run.sh"
    assert description["arguments"] == ["--home", "%(x)s"]
    assert description["environment"] == {"A": "b=c"}
    assert (description["memory"], description["wall_time"], description["sites"]) == (2048, 5400, ["A", "B"])
    assert [one["name"] for one in request["inputs"]] == ["in/a=b", "run.sh"]
    items = {one["name"]: one for one in description["input_sandbox"]}
    assert items["x"] == {"path": "/sw/x", "mode": "shared", "name": "x", "executable": False}
    assert items["f.root"]["url"] == "https://h/f.root?x=1"


def test_submit_files_and_lines(
    cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jdl").write_text('Executable = "/bin/true";')
    (tmp_path / "b.yaml").write_text("executable: /bin/true\nparameters: {count: 2, step: 1}\n")
    (tmp_path / "lines").write_text("one two\n\nthree\n")
    assert cli("submit", "a.jdl", "b.yaml") == 0
    assert cli("submit", "--params-from", "lines", "--", "echo", "%s") == 0
    assert cli("submit", "--count", "3", "--key", "k", "--", "echo", "%s") == 0
    assert cli("submit", "--count", "3", "--key", "k", "--", "echo", "%s") == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "submission 1: 1 job, 1",
        "submission 2: 2 jobs, 2-3",
        "submission 3: 2 jobs, 4-5",
        "submission 4: 3 jobs, 6-8",
        "submission 4: 3 jobs, 6-8",
    ]


def test_submit_and_wait(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("submit", "--wait", "--json", "--", "true") == 0
    assert document(capsys)["states"] == {"Done": 1}
    state.jobs[1]["state"] = "Failed"
    assert cli("wait", "1") == 1
    assert capsys.readouterr().out == "1 Failed\n"
    assert cli("wait", "-s", "1", "--json") == 1
    assert document(capsys)["states"] == {"Failed": 1}


def test_a_dry_run_submits_nothing(
    cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f").write_text("x")
    state.warnings = ["no CE offers GPU"]
    assert cli("submit", "--dry-run", "-i", "f", "--count", "2", "--", "true") == 0
    out, err = capsys.readouterr()
    assert "2 jobs, 1 input file of" in out
    assert err == "warning: no CE offers GPU\n"
    assert cli("submit", "--dry-run", "--json", "-i", "f", "--", "true") == 0
    assert document(capsys)[0]["inputs"][0]["name"] == "f"
    assert state.paths() == ["/v1/submissions/check"] * 2
    assert len(state.checks[0]["parameters"]["rows"]) == 2
    assert cli("submit", "--dry-run", "--count", "5001", "--", "echo", "%s") == 0
    assert state.paths()[-1] == "/v1/submissions/open/check"
    state.failures = [(400, {"code": "invalid-input", "message": "Site: there is no X"})]
    assert cli("submit", "--dry-run", "--site", "X", "--", "true") == 2
    assert "there is no X" in capsys.readouterr().err
    assert not state.submissions
    assert not state.uploads


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--", "./nothing.sh"], "no file ./nothing.sh"),
        (["-i", "nothing", "--", "true"], "cannot read the input nothing"),
        (["--env", "A", "--", "true"], "--env A"),
        (["--param", "a", "--", "true"], "--param a"),
        (["--memory", "much", "--", "true"], "memory must be"),
        (["--wall-time", "soon", "--", "true"], "'soon' is not a duration"),
        (["--requirements", "((", "--", "true"], "requirements"),
        (["-i", "shared:x", "--", "true"], "absolute"),
        (["-o", "../x", "--", "true"], "is outside"),
        (["-o", "out.root=result.root", "--", "true"], "outputs are not renamed"),
        (["--count", "0", "--", "true"], "--count"),
        (["--count", "1000000", "--", "true"], "more jobs"),
        (["--no-inputs", "job.yaml"], "--no-inputs applies to commands only"),
        (["--export", "A-B", "--", "true"], "'A-B' is not the name of a variable"),
        (["--export", "NONE,A", "--", "true"], "NONE stands alone"),
        (["nothing.jdl"], "nothing.jdl"),
        (["bad.yaml"], "bad.yaml: "),
        ([], "Missing argument"),
        (["."], "is a folder"),
        ([".."], "is a folder"),
        (["./"], "is a folder"),
    ],
)
def test_submit_refuses_bad_descriptions_in_two_lines(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], wanted: str
) -> None:
    (tmp_path / "bad.yaml").write_text("executable: [\n")
    assert cli("submit", *words) == 2
    captured = capsys.readouterr()
    assert wanted in captured.err
    assert captured.out == ""
    assert len(captured.err.splitlines()) <= 2


def test_status(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs = {
        1: job(1, "Running"),
        2: job(2, "Failed", reason="exit\tcode\x1b[2J 3"),
        3: job(3, submission=2),
    }
    assert cli("status", "1-3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:2] for line in lines[1:]] == [["1", "Running"], ["2", "Failed"], ["3", "Done"]]
    assert lines[2].endswith("exit code [2J 3")
    assert cli("status") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert cli("status", "-s", "1", "--state", "failed", "--json") == 0
    assert [one["id"] for one in document(capsys)["jobs"]] == [2]
    assert cli("status", "2") == 0
    assert "state\tFailed" in capsys.readouterr().out
    assert cli("status", "2", "--events") == 0
    assert "submitted" in capsys.readouterr().out
    assert cli("status", "--watch", "3") == 0


def test_watch_tells_a_pipe_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe keeps text back until it is flushed, and the jobs may run for hours."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, write_through=False))

    class Waits:
        def wait(self, selection: Selection, *, progress: Callable[[Counts], None]) -> None:
            progress(Counts({"Running": 2}, 2, 0))
            assert b"Running" in shown.getvalue()

    _watch(CommandOutput(), cast("Client", Waits()), Selection(), 50, False)


def test_output(cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs = {1: job(1), 2: job(2, "Failed"), 3: job(3, "Running")}
    state.outputs = {1: {"a": b"1"}, 2: {"stderr": b"oh"}}
    assert cli("output", "-s", "1", "--dir", "out") == 1
    assert capsys.readouterr().out.splitlines() == ["2 files of 2 jobs in out"]
    assert (tmp_path / "out" / "2" / "stderr").read_bytes() == b"oh"
    assert cli("output", "1", "--dir", "out", "--json") == 0
    assert document(capsys)["kept"] == ["out/1/a"]
    assert cli("output", "77") == 4
    state.jobs[1] |= {"name": "one", "parameters": {"x": 5}}
    assert cli("output", "1", "--dir", "by/{name}-{x}") == 0
    assert (tmp_path / "by" / "one-5" / "a").read_bytes() == b"1"
    assert cli("output", "1", "--dir", "by/{y}") == 2


def test_logs(cli: Cli, state: State, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    state.jobs, state.logs = {1: job(1)}, {1: b"caf\xc3\xa9 \xff\n"}
    assert cli("logs", "1", "-f") == 0
    assert capsysbinary.readouterr().out == b"caf\xc3\xa9 \xff\n"
    assert cli("logs", "1", "--json") == 0
    assert json.loads(capsysbinary.readouterr().out)["text"] == "café \ufffd\n"
    state.attempt_logs = {(1, 2): b"the second\n"}
    assert cli("logs", "1", "--attempt", "2") == 0
    assert capsysbinary.readouterr().out == b"the second\n"
    assert cli("logs", "1", "--attempt", "2", "--follow") == 2
    assert cli("logs", "1-2") == 2


def test_verbs(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs = {1: job(1), 2: job(2)}
    assert cli("kill", "1", "2", "--reason", "why") == 0
    assert capsys.readouterr().out == "2 of 2 jobs killed\n"
    state.jobs = {1: job(1)}
    assert cli("kill", "1") == 0
    assert capsys.readouterr().out == "1 of 1 job killed\n"
    state.jobs, state.seen[-1:] = {1: job(1), 2: job(2)}, []
    verb, request = state.seen.pop()
    assert (verb, request["selection"]["ids"], request["reason"]) == ("kill", [1, 2], "why")
    assert cli("kill", "-s", "1") == 2  # nobody there to be asked
    assert [request["dry_run"] for _, request in state.seen] == [True]
    assert cli("kill", "-s", "1", "-y") == 0
    assert cli("reschedule", "-s", "1", "--dry-run") == 0
    assert "would be rescheduled" in capsys.readouterr().out
    assert cli("delete", "1") == 2
    assert cli("delete") == 2
    assert cli("kill", "-s", "9", "-y") == 4


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "list"], ["pilot", "list"], ["site", "list"], ["whoami"], ["token", "show"], ["policy", "show"],
        ["version"], ["token", "create", "bob"], ["status"],
    ],
)  # fmt: skip
def test_json_is_one_document(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli(*words, "--json") == 0
    document(capsys)
    assert cli("--json", *words) == 0
    document(capsys)
    assert cli(*words) == 0


def test_the_token_itself_is_not_shown(
    cli: Cli, fake: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    secret = (fake[0] / "token").read_text()
    for words in (["token", "show"], ["whoami"], ["version"], ["status", "--debug"]):
        cli(*words)
    captured = capsys.readouterr()
    assert secret not in captured.out + captured.err


def test_a_token_into_a_file(
    cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("token", "create", "bob", "--out", "t") == 0
    assert (tmp_path / "t").read_text() == "made-for-someone\n"
    assert (tmp_path / "t").stat().st_mode & 0o777 == 0o600
    assert "made-for-someone" not in capsys.readouterr().out
    assert cli("token", "create", "bob", "--out", "t") == 5
    assert cli("token", "create", "bob", "--lifetime", "0") == 2


def test_policy(cli: Cli, state: State, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[users]\n")
    assert cli("policy", "check", "p.toml") == 0
    assert cli("policy", "apply", "p.toml", "--reason", "r") == 0
    assert [one["dry_run"] for one in state.seen] == [True, False]
    assert cli("policy", "apply", "nothing") == 2


def test_down(cli: Cli, state: State) -> None:
    assert cli("down", "--drain", "--keep-pilots") == 2
    assert cli("down", "--drain") == 0
    assert state.seen == [{"pilots": "drain"}]


def test_one_job_is_told_as_one(
    cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    assert cli("submit", "--dry-run", "--count", "1", "--", "./run.sh", "%s") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 job, 1 input file of 10 B:"
    assert "  with %s = 0" in lines
    assert "  input run.sh (10 B, executable)" in lines


def test_a_dry_run_tells_which_files_are_sent_as_executable(
    cli: Cli, state: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, mode in (("run.sh", 0o755), ("data.txt", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "job.yaml").write_text("executable: sh\ninput_sandbox: [run.sh, data.txt]\n")
    for words in (
        ("job.yaml",),
        ("-i", "run.sh", "-i", "data.txt", "--", "true"),
        ("--", "sh", "run.sh", "data.txt"),
    ):
        assert cli("submit", "--dry-run", "--json", *words) == 0
        [request] = document(capsys)
        described = {item["name"]: item["executable"] for item in request["description"]["input_sandbox"]}
        assert described == {item["name"]: item["executable"] for item in request["inputs"]}
        assert described == {"run.sh": True, "data.txt": False}


REQUEST = {
    "id": 1207, "name": "reprocessing-of-the-spring-run", "owner": "carla", "group": "production", "priority": 110000,
    "team": "reconstruction", "campaign": "", "state": "running-closed", "reason": "", "created": 1000.0,
    "changed": 1000.0, "elements": 1200, "ended_elements": 300, "jobs": 24000, "done_jobs": 9000,
}  # fmt: skip


@pytest.mark.parametrize("failed", [0, 12])
def test_requests_tell_owner_and_team_in_80_columns(
    failed: int, cli: Cli, state: State, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = (200, {"requests": [{**REQUEST, "failed_jobs": failed}], "next": None})
    state.failures = [answer, answer]
    assert cli("request", "list") == 0
    elsewhere = capsys.readouterr().out.splitlines()[1].split("\t")
    cells = ["1207", REQUEST["name"], "carla", "110000", "reconstruction", "running-closed", "300/1,200"]
    assert elsewhere[:9] == [*cells, "9,000/24,000", str(failed or "-")], "nothing is cut off a terminal"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli("request", "list") == 0
    shown, told = capsys.readouterr()
    assert max(map(len, shown.splitlines())) <= 80
    for text in ("1207", "carla", "reconstruction", "running-closed", "9,000/24,000", str(failed or "")):
        assert text in shown
    assert "priority, elements" in told


def test_a_condition_tells_one_refusal_of_each_kind(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [{"job": number, "message": "the job is already Done"} for number in range(1, 11)]
    state.failures = [(200, {"matched": 168, "done": 0, "refused": refused})]
    assert cli("kill", "--owner", "ada", "-y") == 5
    told = capsys.readouterr().err
    assert told.count("already Done") == 1
    assert "... 167 more jobs were not changed" in told


def test_output_that_cannot_be_written_is_told_once(state: State, tmp_path: Path) -> None:
    state.jobs, state.logs = {1: job(1)}, {1: b"hello"}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pilotage.main", "logs", "1"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PILOTAGE_HOME": str(tmp_path / "home")},
        )
    assert (done.returncode, done.stderr.count("No space left")) == (2, 1), done.stderr
