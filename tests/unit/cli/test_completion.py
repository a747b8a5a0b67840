"""`pilotage completion`: the words that shells offer, and the scripts in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from pilotage.cli import completion
from pilotage.cli.completion import KINDS, completions
from pilotage.cli.root import build
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.main.completion import SCRIPTS
from tests.deadlines import PATIENCE
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_server import State, job

ROOT = build(SERVER_COMMANDS)


def ask(kind: str, begun: str) -> Iterable[object]:
    known: dict[str, list[object]] = {
        "jobs": [12, 123, 7],
        "sites": ["T2", "here", "a b", "$(rm x)", "x'y"],
        "states": ["Done"],
    }
    return known.get(kind) or [kind]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["submiss"], {"submission"}),
        (["request", "res"], {"resubmit", "resume"}),
        (["ban", "l"], {"list"}),
        (["why", "12"], {"12", "123"}),
        (["kill", "7", "1"], {"12", "123"}),
        (["kill", "--reason", "7", "1"], {"12", "123"}),
        (["--json", "--home", "x", "why", "7"], {"7"}),
        (["site", "drain", ""], {"T2", "here"}),
        (["status", "--state", ""], {"Done"}),
        (["status", "--site", "h"], {"here"}),
        (["cost", "--by", "o"], {"owner"}),
        (["kill", "--dry"], {"--dry-run"}),
        (["ce", "show", ""], {"ces"}),
        (["pilot", "kill", ""], {"pilots"}),
        (["dataset", "show", ""], {"datasets"}),
        (["submit", "--", "ru"], set()),
        (["logs", "7", ""], set()),
        (["no-such", "x"], set()),
    ],
)
def test_words_are_completed(words: list[str], found: set[str]) -> None:
    assert set(completions(ROOT, words, ask)) == found


def test_an_empty_line_offers_the_commands() -> None:
    assert {"submit", "request", "up", "completion"} <= set(completions(ROOT, [""], ask))


def test_each_kind_of_name_can_be_read() -> None:
    tables = (completion._OF_OPTIONS, completion._OF_ARGUMENTS, completion._OF_GROUPS)
    assert {kind for table in tables for kind in table.values()} == KINDS.keys()


def test_ids_of_the_server_are_offered(state: State, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs = {number: job(number) for number in (5, 50)}
    assert cli("completion", "words", "--", "why", "5") == 0
    assert set(capsys.readouterr().out.split()) == {"5", "50"}


def test_nothing_is_said_without_a_server(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("completion", "words", "--", "why", "") == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_accepts_its_script(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    done = subprocess.run([program, "-n", str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_offers_each_word_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        SCRIPTS["bash"]
        + 'pilotage() { printf "%s\\n" "got $*" two; }\n'
        + "COMP_WORDS=(pilotage why ''); COMP_CWORD=2; _pilotage\n"
        + 'printf "<%s>" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "<got completion words -- why ><two>", done.stderr
