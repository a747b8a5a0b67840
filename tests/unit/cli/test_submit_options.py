"""What the options of `submit` do to a job file, which files of a command go along, and --export."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pilotage.cli import named_files
from pilotage.cli.export_option import parse_export
from pilotage.cli.submit_options import JobOptions
from tests.unit.client.fake_server import State

Cli = Callable[..., int]

# Every field has a value of its own, so that an option that does nothing is seen.
FILE = """\
executable: sim
arguments: ["%s"]
environment: {KEPT: file, MODE: file}
input_sandbox: [{path: data/in.txt, name: in.txt}, {path: kept.txt}]
output_sandbox: [file.root]
job_name: from-file
job_group: from-file
job_type: FileType
user_priority: 2
cpu_time: 77
wall_time: 78
memory: 79
disk: 80
processors: 2
setup_lines: [module load file]
container: file.sif
sites: [FileSite]
banned_sites: [FileBanned]
platforms: [file-os]
tags: [filetag]
requirements: FileValue > 1
retries: 2
on_cutoff: stop
parameters: [one, two]
"""
NODES_PATH = "/usr/bin:/bin"

# Field of JobOptions: words, field of the description, and what must stand there.
OVERRIDES: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "name": (("--name", "x"), "job_name", "x"),
    "job_group": (("--job-group", "x"), "job_group", "x"),
    "job_type": (("--job-type", "Merge"), "job_type", "Merge"),
    "sites": (("--site", "A,B"), "sites", ["A", "B"]),
    "banned_sites": (("--ban-site", "C", "--site", "A", "--site", "C"), "sites", ["A"]),
    "platforms": (("--platform", "p"), "platforms", ["p"]),
    "tags": (("--tag", "GPU", "--tag", "big"), "tags", ["GPU", "big"]),
    "cpu_time": (("--cpu-time", "500"), "cpu_time", 500),
    "wall_time": (("--wall-time", "1:30"), "wall_time", 90),
    "warn": (("--warn", "1m"), "warn", 60),
    "memory": (("--memory", "2GB"), "memory", 2048),
    "disk": (("--disk", "20GB"), "disk", 20480),
    "processors": (("--processors", "4"), "processors", 4),
    "priority": (("--priority", "7"), "user_priority", 7),
    "outputs": (("-o", "*.x"), "output_sandbox", ["*.x"]),
    "environment": (("--env", "MODE=line"), "environment", {"KEPT": "file", "MODE": "line"}),
    "export": (
        ("--export", "MODE=a,NEW", "--env", "X=1"),
        "environment",
        {"KEPT": "file", "MODE": "a", "NEW": "new here", "X": "1"},
    ),
    "setup": (("--setup", "a", "--setup", "b"), "setup_lines", ["a", "b"]),
    "container": (("--container", "c.sif"), "container", "c.sif"),
    "requirements": (("--requirements", "Other > 2"), "requirements", "other > 2"),
    "retries": (("--retries", "5"), "retries", 5),
    "after": (("--after", "12,s:13"), "after", ["12", "s:13"]),
    "after_ok": (("--after-ok", "12", "--after-ok", "13"), "after_ok", ["12", "13"]),
    "after_fail": (("--after-fail", "s:12"), "after_fail", ["s:12"]),
    "hold": (("--hold",), "hold", True),
    "mail_type": (("--mail-type", "end,fail"), "mail_type", ["end", "fail"]),
    "mail_user": (("--mail-user", "ada@example.org"), "mail_user", "ada@example.org"),
    "parallel": (("--parallel", "3"), "parallel", 3),
    "after_each": (("--after-each", "s:12"), "after_each", ["s:12"]),
    "on_cutoff": (("--on-cutoff", "continue"), "on_cutoff", None),
}
PARAMETERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "array": (("--array", "1-5:2"), {"names": [""], "rows": [[1], [3], [5]]}),
    "count": (("--count", "3"), {"names": [""], "rows": [[0], [1], [2]]}),
    "params": (("--param", "Seed=4,5"), {"names": ["Seed"], "rows": [["4"], ["5"]]}),
    "params_from": (("--params-from", "lines"), {"names": [""], "rows": [["l1"], ["l2"], ["l3"]]}),
}
INPUTS = {"inputs"}
IN_PLACE = {"here", "chdir", "stdout_file", "stderr_file", "open_mode"}
"""Tested in test_in_place_options.py."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs" / "data").mkdir(parents=True)
    (tmp_path / "jobs" / "job.yaml").write_text(FILE)
    (tmp_path / "jobs" / "data" / "in.txt").write_text("of the file")
    (tmp_path / "jobs" / "kept.txt").write_text("kept")
    (tmp_path / "in.txt").write_text("of the line")
    (tmp_path / "lines").write_text("l1\nl2\nl3\n")
    monkeypatch.setenv("NEW", "new here")
    monkeypatch.delenv("UNSET", raising=False)
    return tmp_path


def last(state: State) -> dict[str, Any]:
    request: dict[str, Any] = list(state.submissions.values())[-1]["request"]
    return request


def test_every_option_stands_in_a_table_of_these_tests() -> None:
    assert {field.name for field in fields(JobOptions)} == {*OVERRIDES, *PARAMETERS, *INPUTS, *IN_PLACE}


@pytest.mark.parametrize("option", ["--after", "--after-ok", "--after-fail", "--after-each"])
def test_an_empty_variable_of_a_script_names_no_parent(
    cli: Cli, state: State, folder: Path, option: str
) -> None:
    assert cli("submit", option, "", "jobs/job.yaml") != 0
    assert not state.submissions


@pytest.mark.parametrize("option", OVERRIDES)
def test_an_option_stands_over_the_job_file(cli: Cli, state: State, folder: Path, option: str) -> None:
    words, name, wanted = OVERRIDES[option]
    assert cli("submit", "jobs/job.yaml") == 0
    before = last(state)
    assert before["description"].get(name) != wanted
    assert cli("submit", *words, "jobs/job.yaml") == 0
    after = last(state)
    assert after["description"].get(name) == wanted
    assert after["parameters"] == before["parameters"]
    changed = {
        key
        for key in {**before["description"], **after["description"]}
        if before["description"].get(key) != after["description"].get(key)
    }
    assert changed == {name}


@pytest.mark.parametrize("option", PARAMETERS)
def test_parameters_of_the_line_replace_those_of_the_file(
    cli: Cli, state: State, folder: Path, option: str
) -> None:
    words, wanted = PARAMETERS[option]
    assert cli("submit", *words, "jobs/job.yaml") == 0
    assert last(state)["parameters"] == wanted


def test_an_input_of_the_line_replaces_the_one_of_its_name(cli: Cli, state: State, folder: Path) -> None:
    assert cli("submit", "-i", "in.txt", "-i", "lines=more", "jobs/job.yaml") == 0
    sent = {one["name"]: state.uploads[one["digest"]] for one in last(state)["inputs"]}
    assert sent == {"in.txt": b"of the line", "kept.txt": b"kept", "more": b"l1\nl2\nl3\n"}


def test_a_jdl_with_options(cli: Cli, state: State, folder: Path) -> None:
    (folder / "job.jdl").write_text('Executable = "sim"; CPUTime = 10; JobName = "old";')
    assert cli("submit", "job.jdl", "--cpu-time", "500", "--name", "x") == 0
    assert last(state)["description"] == {"executable": "sim", "cpu_time": 500, "job_name": "x"}


def test_the_file_is_checked_with_the_options_applied(
    cli: Cli, state: State, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("submit", "--site", "FileBanned", "--ban-site", "FileBanned", "jobs/job.yaml") == 2
    assert "banned" in capsys.readouterr().err
    assert cli("submit", "--site", "a-%s", "jobs/job.yaml") == 2
    assert "placeholder is not allowed" in capsys.readouterr().err
    assert state.requests == []


# --- files that a command names


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", NODES_PATH)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "a.py").write_text("print()\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.csv").write_text("1\n")
    (tmp_path / "cfg.yaml").write_text("x: 1\n")
    (tmp_path / "sh").write_text("not the shell\n")
    (tmp_path / "python3").mkdir()
    (tmp_path.parent / "outside.txt").write_text("no\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "executable", "sent"),
    [
        (("run.sh",), "./run.sh", {"run.sh"}),
        (("./run.sh", "sub/b.csv"), "./run.sh", {"run.sh", "sub/b.csv"}),
        (("--", "python3", "a.py", "./sub/b.csv", "sub/b.csv"), "python3", {"a.py", "sub/b.csv"}),
        (("--", "python3"), "python3", set()),
        (("--", "sh", "run.sh"), "sh", {"run.sh"}),
        (
            ("--", "no-such-program", "no-such-file", "sub", "-v", "--config=cfg.yaml"),
            "no-such-program",
            set(),
        ),
        (("--", "python3", "../outside.txt", "/etc/hostname", ".", ""), "python3", set()),
        (("--no-inputs", "--", "run.sh", "a.py"), "run.sh", set()),
        (("-i", "a.py=b.py", "--", "python3", "a.py"), "python3", {"a.py", "b.py"}),
        (("-i", "sub", "--", "python3", "sub/b.csv"), "python3", {"sub/b.csv"}),
        (("-i", "run.sh", "--", "run.sh"), "./run.sh", {"run.sh"}),
    ],
)
def test_files_that_a_command_names_go_along(
    cli: Cli, state: State, work: Path, words: tuple[str, ...], executable: str, sent: set[str]
) -> None:
    assert cli("submit", *words) == 0
    request = last(state)
    assert request["description"]["executable"] == executable
    assert {one["name"] for one in request["inputs"]} == sent
    if executable.startswith("./"):
        items = {one["name"]: one for one in request["description"]["input_sandbox"]}
        assert items["run.sh"]["executable"] or "-i" in words


def test_submit_tells_which_named_files_it_sends(
    cli: Cli, state: State, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run.sh", "a.py", "sub", "../outside.txt", "--config=cfg.yaml", work / "a.py")
    assert cli("submit", "--", *words) == 0
    out, err = capsys.readouterr()
    assert out == "submission 1: 1 job, 1\n"
    assert err.splitlines() == [
        "sending run.sh, a.py (18 B)",
        "the folder sub is not sent: -i sub sends it",
        "../outside.txt is not sent, since it is not below this folder: -i ../outside.txt sends it",
        "cfg.yaml in --config=cfg.yaml is not sent: -i cfg.yaml sends it",
        f"{work}/a.py is not sent: the job looks for it there on its node; a.py sends it",
    ]
    assert cli("submit", "--", "python3") == 0
    assert "the folder python3 here is not sent" in capsys.readouterr().err
    assert cli("submit", "--", "sh") == 0
    assert "./sh sends the file here" in capsys.readouterr().err


def test_much_is_not_sent_unasked(
    cli: Cli, state: State, work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (work / "large.h5").open("wb") as file:
        file.truncate(named_files.MAX_BYTES + 1)
    assert cli("submit", "--", "python3", "a.py", "large.h5") == 2
    told = capsys.readouterr().err
    assert "up to large.h5, that are more than 100 MB" in told
    assert "--input large.h5" in told
    assert "--no-inputs" in told
    assert state.requests == []
    assert cli("submit", "--no-inputs", "--", "python3", "a.py", "large.h5") == 0
    monkeypatch.setattr(named_files, "MAX_FILES", 2)
    assert cli("submit", "--", "cat", "a.py", "run.sh", "cfg.yaml") == 2
    assert "more than 2 files" in capsys.readouterr().err


# --- --export

SHELL = {
    "A": "1",
    "B": "two words",
    "C": "x,y;$(z)",
    "BASH_FUNC_f%%": "() { :; }",
    "PILOTAGE_TOKEN_FILE": "/secret",
    "PATH": "/mine",
}


@pytest.mark.parametrize(
    ("word", "variables", "unset"),
    [
        ("", {}, []),
        ("NONE", {}, []),
        ("none", {}, []),
        ("A", {"A": "1"}, []),
        ("A,B", {"A": "1", "B": "two words"}, []),
        ("A=5,D=", {"A": "5", "D": ""}, []),
        ("D='a,b',A", {"D": "a,b", "A": "1"}, []),
        ("A,NO", {"A": "1"}, ["NO"]),
        ("ALL", {"A": "1", "B": "two words", "C": "x,y;$(z)", "PATH": "/mine"}, []),
        ("ALL,A=9", {"A": "9", "B": "two words", "C": "x,y;$(z)", "PATH": "/mine"}, []),
    ],
)
def test_export_selects_variables(word: str, variables: dict[str, str], unset: list[str]) -> None:
    assert parse_export(word, SHELL) == (variables, unset)


def test_export_of_a_command(
    cli: Cli, state: State, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("submit", "--", "true") == 0
    assert "environment" not in last(state)["description"]
    assert cli("submit", "--export", "NEW,UNSET", "--env", "K=v", "--", "true") == 0
    assert last(state)["description"]["environment"] == {"NEW": "new here", "K": "v"}
    assert "--export UNSET: UNSET is not set here" in capsys.readouterr().err


def test_every_order_of_options_and_files_is_read(cli: Cli, state: State, folder: Path) -> None:
    for words in itertools.permutations((("--name", "x"), ("jobs/job.yaml",), ("--priority", "3"))):
        assert cli("submit", *itertools.chain(*words)) == 0
        assert last(state)["description"]["job_name"] == "x"
        assert last(state)["description"]["user_priority"] == 3
