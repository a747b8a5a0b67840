"""The examples of docs/explanation/matchmaking.md: each command prints the text below it.

`python -m tests.unit.docs.test_matchmaking_page` writes the output of today into the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from tests.deadlines import PATIENCE

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "matchmaking.md"

FILE = re.compile(r"<!-- file: (\S+) -->\n```\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)
AGE = re.compile(r"[0-9.]+ d old")


def examples(page: str) -> list[list[str]]:
    """The commands of each block."""
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for _, block, _ in BLOCK.findall(page)
    ]


def run(page: str, folder: Path) -> list[str]:
    """The blocks as a shell prints them, in a folder with the files of the page."""
    for name, text in FILE.findall(page):
        (folder / name).write_text(text, encoding="utf-8")
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    shown = []
    for commands in examples(page):
        text = ""
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command}"],
                cwd=folder,
                env={"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
            )
            text += f"$ {command}\n{aligned(done.stdout)}"
        shown.append(text)
    return shown


def aligned(text: str) -> str:
    """Names and values of a block of facts in columns, as on a terminal."""
    text = AGE.sub("7720 d old", text)
    return re.sub(r"^([^\t\n]+)\t", lambda match: f"{match[1]:<12}", text, flags=re.MULTILINE)


def written(page: str, shown: list[str]) -> str:
    blocks = iter(shown)
    return BLOCK.sub(lambda match: match[1] + next(blocks) + match[3], page)


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(examples(page)) >= 4
    assert written(page, run(page, tmp_path)) == page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(text, run(text, Path(folder))), encoding="utf-8")
