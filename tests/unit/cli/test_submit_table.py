"""`submit --table` against the fake server."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.client.fake_server import State

Cli = Callable[..., int]
ECHO = ("--", "echo", "%(a)s", "%(b)s")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{n},x{n}\n" for n in range(6000)))
    return path


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_file(cli: Cli, state: State, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("submit", "--table", table, "--key", "k", *ECHO) == 0
    stream = state.streams["k"]
    assert [len(chunk) for chunk in stream["chunks"]] == [5000, 1000]
    assert stream["chunks"][1][0] == ["5000", "x5000"]
    assert (stream["request"]["names"], stream["request"]["expected"]) == (["a", "b"], 6000)
    output = capsys.readouterr()
    assert output.out == "submission 1: 6,000 jobs, 1-6000\n"
    assert output.err == ""


def test_standard_input(cli: Cli, state: State, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n')
    assert cli("submit", "--table", "-", "--key", "k", *ECHO) == 0
    assert state.streams["k"]["chunks"] == [[[1, "x"], [2, "y"]]]
    assert state.streams["k"]["request"]["expected"] is None


def test_a_job_file_with_a_table(cli: Cli, state: State, table: Path, tmp_path: Path) -> None:
    (tmp_path / "job.jdl").write_text('Executable = "echo"; Arguments = "%(a)s %n";')
    assert cli("submit", "--table", table, "--key", "k", "job.jdl") == 0
    assert state.streams["k"]["request"]["description"]["arguments"] == ["%(a)s", "%n"]


def test_a_dry_run_tells_the_rows_and_sends_none(
    cli: Cli, state: State, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state.warnings = ["nothing runs it"]
    assert cli("submit", "--table", table, "--dry-run", *ECHO) == 0
    out, err = capsys.readouterr()
    assert err == "warning: nothing runs it\n"
    lines = out.splitlines()
    assert lines[0] == "6,000 jobs, 0 input files of 0 B:"
    assert "  with a = 2, b = x2" in lines
    assert state.paths() == ["/v1/submissions/open/check"]
    assert cli("submit", "--json", "--table", table, "--dry-run", *ECHO) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == 6000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--table", "rows.csv", "--count", "3", *ECHO), "cannot be combined"),
        (("--table", "none.csv", *ECHO), "cannot read the table none.csv"),
        (("--table", ".", *ECHO), "cannot read the table"),
        (("--table", "-", "-"), "cannot be both the job file and the table"),
        (("--table", "rows.csv", "--", "echo", "%(c)s"), "no parameter for %(c)s"),
        (("--table", "rows.csv", "one.jdl", "one.jdl"), "exactly one job file or command"),
        (("--table", "rows.csv", "two.yaml"), "parameters of its own"),
        (("--table", "names.csv", *ECHO), "names and no rows"),
        (("--table", "bad.csv", *ECHO), "bad.csv, line 3 has 1 value for 2 names"),
        (("--table", "rows.csv", "-i", "%(a)s", "--", "echo"), "row 1: there is no file 0"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(
    cli: Cli, state: State, table: Path, tmp_path: Path, words: tuple[str, ...], told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "one.jdl").write_text('Executable = "x";')
    (tmp_path / "two.yaml").write_text("executable: x\nparameters: [1]\n")
    (tmp_path / "names.csv").write_text("a,b\n")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    assert cli("submit", *words) == 2
    assert told in capsys.readouterr().err
    assert state.requests == []


def test_a_mistake_in_a_pipe_tells_how_to_go_on(
    cli: Cli, state: State, table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, table.read_bytes() + b"oh\n")
    assert cli("submit", "--table", "-", "--key", "k", *ECHO) == 2
    told = capsys.readouterr().err
    assert "standard input, line 6,002 has 1 value for 2 names" in told
    assert "the server has 5,000 rows, as submission 1; repeat all rows with the key k" in told
    given(monkeypatch, table.read_bytes() + b"oh,1\n")
    assert cli("submit", "--table", "-", "--key", "k", *ECHO) == 0
    assert sum(map(len, state.streams["k"]["chunks"])) == 6001


def test_a_long_list_of_the_command_line_goes_in_chunks(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("submit", "--count", "5001", "--key", "k", "--", "echo", "%s") == 0
    assert capsys.readouterr().out == "submission 1: 5,001 jobs, 1-5001\n"
    assert state.streams["k"]["request"]["expected"] == 5001
