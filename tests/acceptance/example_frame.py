"""Runs the scripts of `examples`, as somebody who tries them for the first time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tests.deadlines import PATIENCE
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(
    name: str, folder: Path, *words: str, patience: float = 3 * PATIENCE, **more: str
) -> subprocess.CompletedProcess[str]:
    """`more`: environment variables."""
    environment = {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PILOTAGE_PYTHON": sys.executable,
        "PORTS": free_ports(3),
        **more,
    }
    return subprocess.run(
        [EXAMPLES / name / "run", *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience,
    )


def free_ports(count: int) -> str:
    return " ".join(str(free_port()) for _ in range(count))


class ExampleWords:
    """The script of an example refuses words that it does not have."""

    example: ClassVar[str]

    @pytest.mark.parametrize("words", [["--jobs"], ["--jobs", "many"], ["--jobs", "0"], ["--jbos", "5"]])
    def test_wrong_words(self, tmp_path: Path, words: list[str]) -> None:
        tried = run_example(self.example, tmp_path, *words)
        assert tried.returncode == 2
        assert "--jobs" in tried.stderr or "no such option" in tried.stderr
