"""`./test` exits with the status of pytest, or with 1 after a failed static check: CI reads nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE

ROOT = Path(__file__).parents[2]

# The program of the forked workers serves until it is told to end. Everything else ends with the wished status.
PYTHON = f"""#!{sys.executable}
import os, signal, socket, sys
if "tests.forked_worker" not in sys.argv:
    sys.exit(int(os.environ["PYTEST_STATUS"]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[3])
signal.pause()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a folder with the real `test` in which each program only tells its status."""
    shutil.copy(ROOT / "test", tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "environment.sh").write_text("prepare_environment() { :; }\n")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(PYTHON)
    for name in ("ruff", "mypy", "lint-imports"):
        (programs / name).write_text('#!/bin/sh\nexit "${CHECK_STATUS:-0}"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("pytest_status", "check_status", "expected"), [(0, 0, 0), (1, 0, 1), (3, 0, 3), (0, 1, 1)]
)
def test_a_run_ends_with_the_status_of_its_checks(
    checkout: Path, pytest_status: int, check_status: int, expected: int
) -> None:
    run = subprocess.run(
        ["bash", "test"],
        cwd=checkout,
        env={
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(checkout),
            "PYTEST_STATUS": str(pytest_status),
            "CHECK_STATUS": str(check_status),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == expected, run.stdout + run.stderr
    assert "took 0 min" in run.stdout
    assert not [folder for folder in checkout.glob("tmp.*")]
