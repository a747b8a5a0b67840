"""The first example of the README, command by command as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[str]:
    part = README.read_text(encoding="utf-8").partition("## Your own jobs")[2]
    block = re.search(r"```console\n(.*?)```", part, re.DOTALL)
    assert block is not None
    return [line.removeprefix("$ ") for line in block[1].splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_the_first_example_runs_as_it_stands(tmp_path: Path) -> None:
    """As a new user: an empty home, a shell without settings."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(sysconfig.get_path("scripts"))
    (tmp_path / "home").mkdir()
    script = "set -e\ntrap 'pilotage down --cancel-pilots >/dev/null || true' EXIT\n" + "\n".join(commands())
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^run \d on ", done.stdout, re.MULTILINE)) == 10, done.stdout
    assert "the server has stopped" in done.stdout
