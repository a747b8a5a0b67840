"""examples/slurm/run, as somebody who tries Slurm for the first time calls it, with fewer jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import slurm
from tests.deadlines import PATIENCE
from tests.ports import free_port

RUN = Path(__file__).parents[2] / "examples/slurm/run"

pytestmark = pytest.mark.timeout(4 * PATIENCE)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PILOTAGE_PYTHON": sys.executable,
        "PORTS": " ".join(str(free_port()) for _ in range(3)),
    }
    return subprocess.run(
        [RUN, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path, since the name of a socket has at most 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ex-"))
    yield folder
    shutil.rmtree(folder)


def test_jobs_end_in_slurm_and_their_core_seconds_are_told(short_folder: Path) -> None:
    slurm.require()
    tried = run(short_folder, "--jobs", "24")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "CE slurm works" in tried.stdout
    assert "24 Done" in tried.stdout
    table = next(line for line in tried.stdout.splitlines() if line.startswith("Table:")).split()[-1]
    assert "json/decoder" in Path(table).read_text()
    header, costs = tried.stdout.partition("ce\tpayload\t")[2].splitlines()[:2]
    values = dict(zip(header.split("\t"), costs.split("\t")[2:], strict=True))
    assert float(values["total"]) > 0
    folder = Path(table).parent
    assert not list(folder.glob("slurm/*.pid")), "all daemons have ended"


@pytest.mark.parametrize("words", [["--jobs"], ["--jobs", "many"], ["--jobs", "0"], ["--jbos", "5"]])
def test_wrong_words(tmp_path: Path, words: list[str]) -> None:
    tried = run(tmp_path, *words)
    assert tried.returncode == 2
    assert "--jobs" in tried.stderr or "no such option" in tried.stderr
