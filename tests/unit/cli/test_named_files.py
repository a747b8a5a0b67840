"""Misspelt files of a command are told before it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.cli.named_files import find_named_files


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("analyse.py", "result1.txt", "config.yaml"):
        (tmp_path / name).write_text("")


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("python3 analsye.py", "warning: there is no file analsye.py here; did you mean analyse.py?"),
        ("python3 other.py", "warning: there is no file other.py here"),
        ("/usr/bin/python3.11 ./other.py", "warning: there is no file ./other.py here"),
        ("bash run.sh", "warning: there is no file run.sh here"),
        ("/etc", "warning: /etc is a folder here, and no program"),
        (
            "nosuchprogram -x",
            "warning: there is no program nosuchprogram here; the job looks for it on its node",
        ),
        (
            "/bin/simulate conifg.yaml",
            "warning: there is no file conifg.yaml here; did you mean config.yaml?",
        ),
    ],
)
def test_a_missing_file_is_told(command: str, note: str) -> None:
    assert find_named_files(command.split(), set()).notes == [note]


@pytest.mark.parametrize(
    "command",
    [
        "python3 analyse.py",
        "python3 -m http.server",
        "python3 analyse.py out.root",
        "cat result2.txt",
        "python3 analyse-%s.py",
        "echo 1.5 hello. example.com ... -x.py https://host/x.py",
        "./analyse.py --config=conifg.yaml",
        "python3 /opt/x.py",
    ],
)
def test_other_words_are_no_missing_files(command: str) -> None:
    assert not [note for note in find_named_files(command.split(), set()).notes if "no file" in note]


def test_inputs_and_outputs_are_no_missing_files() -> None:
    assert not find_named_files(["python3", "analsye.py"], {"analsye.py"}).notes
    assert not find_named_files(["/bin/sim", "analsye.py"], set(), ["*.py"]).notes
