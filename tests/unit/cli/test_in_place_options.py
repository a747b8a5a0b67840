"""`submit --here` and `--chdir`: which folder the job names, and which files do not go along."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilotage.client.in_place import folder_mark
from tests.unit.client.fake_server import State

Cli = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.sh").write_text("true\n")
    (tmp_path / "job.yaml").write_text("executable: a\ninput_sandbox: [run.sh]\n")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    return tmp_path


def described(state: State) -> dict[str, Any]:
    description: dict[str, Any] = list(state.submissions.values())[-1]["request"]["description"]
    return description


def test_a_command_runs_here_and_sends_nothing(cli: Cli, state: State, folder: Path) -> None:
    words = ("--stdout", "o-%j", "--stderr", "e", "--open-mode", "append")
    assert cli("submit", "--here", *words, "--", "bash", "run.sh") == 0
    sent = described(state)
    assert (sent["folder"], sent["folder_mark"]) == (str(folder), folder_mark(folder))
    assert (sent["stdout_file"], sent["stderr_file"], sent["open_mode"]) == ("o-%j", "e", "append")
    umask = os.umask(0o077)
    os.umask(umask)
    assert int(sent["umask"], 8) == umask
    assert "input_sandbox" not in sent


def test_the_folder_has_the_name_that_the_shell_knows(
    cli: Cli, state: State, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = folder / "link"
    link.symlink_to(folder / "other")
    monkeypatch.chdir(link)
    monkeypatch.setenv("PWD", str(link))
    assert cli("submit", "--here", "--", "true") == 0
    assert described(state)["folder"] == str(link)
    monkeypatch.setenv("PWD", "/")
    assert cli("submit", "--here", "--", "true") == 0
    assert described(state)["folder"] == str(folder / "other")


def test_another_folder_may_be_named_even_if_it_is_not_here(cli: Cli, state: State, folder: Path) -> None:
    assert cli("submit", "--chdir", "other", "--", "true") == 0
    assert described(state)["folder"] == str(folder / "other")
    assert cli("submit", "--chdir", "/nowhere/at/all", "--", "true") == 0
    assert described(state)["folder"] == "/nowhere/at/all"
    assert "folder_mark" not in described(state)


def test_files_of_a_job_file_stay_where_they_are(cli: Cli, state: State, folder: Path) -> None:
    assert cli("submit", "--here", "job.yaml") == 0
    assert "input_sandbox" not in described(state)
    before = len(state.submissions)
    assert cli("submit", "--chdir", "other", "job.yaml") != 0
    assert len(state.submissions) == before


@pytest.mark.parametrize("words", [("--here", "--chdir", "other"), ("--chdir", "run.sh"), ("--stdout", "o")])
def test_what_cannot_be_meant_is_refused(
    cli: Cli, state: State, folder: Path, words: tuple[str, ...]
) -> None:
    assert cli("submit", *words, "--", "true") != 0
    assert not state.submissions
