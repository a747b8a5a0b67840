"""The first examples, command by command as they stand in the README and in a tutorial."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-jobs.md"


def commands(text: str) -> list[str]:
    """The lines of the console examples: commands, and the lines of their here-documents."""
    lines: list[str] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        end = ""
        for line in block.splitlines():
            if end:
                lines.append(line)
                end = "" if line == end else end
            elif line.startswith("$ "):
                lines.append(line.removeprefix("$ "))
                found = re.search(r"<<'(\w+)'", line)
                end = found[1] if found else ""
    return lines


def of_readme() -> list[str]:
    part = README.read_text(encoding="utf-8").partition("## Your own jobs")[2]
    return commands(part.partition("\n## ")[0])


def of_tutorial() -> list[str]:
    text = TUTORIAL.read_text(encoding="utf-8").partition("## 2. Start a server")[2]
    text = re.sub(
        r"```yaml\n(.*?)```", r"```console\n$ cat > ten.yaml <<'END'\n\1END\n```", text, flags=re.DOTALL
    )
    # The failed job of the tutorial makes its `wait` fail, as it should.
    lines = [line.replace("sleep 1", "sleep 0.1") for line in commands(text)]
    failing = next(place for place, line in enumerate(lines) if "/nowhere" in line) + 1
    assert lines[failing] == "pilotage wait $job"
    lines[failing] += " && exit 99 || [ $? = 1 ]"
    return lines


def run(tmp_path: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """As a new user: an empty home, a shell without settings."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(sysconfig.get_path("scripts"))
    (tmp_path / "home").mkdir()
    script = "set -e\ntrap 'pilotage down --cancel-pilots >/dev/null || true' EXIT\n" + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_the_first_example_runs_as_it_stands(tmp_path: Path) -> None:
    done = run(tmp_path, of_readme())
    assert len(re.findall(r"^run \d on ", done.stdout, re.MULTILINE)) == 10, done.stdout
    assert "the server has stopped" in done.stdout


@pytest.mark.slow
def test_the_tutorial_runs_in_the_home_of_the_first_example(tmp_path: Path) -> None:
    """Ids and numbers of submissions are higher there than the printed ones."""
    done = run(
        tmp_path, ["export PATH=$PWD/.venv/bin:$PATH", *of_readme()[1:], *of_tutorial(), *of_readme()[1:]]
    )
    assert "\njob 7\n" in done.stdout
    assert "10 of 10 jobs would be deleted" in done.stdout
    assert done.stdout.count("the server has stopped") == 3
