"""examples/reach/run, as somebody who tries several batch systems for the first time calls it, with fewer jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import htcondor, rucio, s3, slurm, ssh_server
from tests.deadlines import PATIENCE
from tests.ports import free_port

RUN = Path(__file__).parents[2] / "examples/reach/run"
CES = ("condor", "local", "slurm")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PILOTAGE_PYTHON": sys.executable,
        "PORTS": " ".join(str(free_port()) for _ in range(3)),
        "S3_PORTS": " ".join(str(free_port()) for _ in range(10)),
        **{name: str(free_port()) for name in ("CONDOR_PORT", "SSH_PORT", "RUCIO_PORT")},
        "CONDOR_ROOT": str(htcondor.ROOT),
        "RUCIO_VENV": str(rucio.environment_folder()[0]),
        "S3_VENV": str(s3.environment_folder()[0]),
    }
    return subprocess.run(
        [RUN, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=7 * PATIENCE,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder that the Debian of HTCondor sees, with a short path for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ex-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_three_kinds_of_ces_run_the_jobs_of_a_request_over_rucio(short_folder: Path) -> None:
    for service in (htcondor, rucio, s3, slurm, ssh_server):
        service.require()
    tried = run(short_folder, "--jobs", "60")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    matched = tried.stdout.partition("== 7.")[2].partition("== 8.")[0]
    for ce in CES:
        assert f"CE\t{ce}\nmatch\tyes\n" in matched
    ended = tried.stdout.partition("== 9.")[2]
    assert "60 outputs, such as s3://" in ended
    costs = dict(line.split("\t", 1) for line in ended.splitlines() if line.count("\t") == 6)
    assert {*CES, "total"} <= costs.keys()
    assert all(float(costs[ce].split("\t")[4]) > 0 for ce in CES), (
        "at least the probe of each CE has cost something"
    )
    assert not [*short_folder.glob("*/*/*.pid"), *short_folder.glob("*/htcondor/run/*.pid")], (
        "all services have ended"
    )


@pytest.mark.parametrize("words", [["--jobs"], ["--jobs", "many"], ["--jobs", "0"], ["--jbos", "5"]])
def test_wrong_words(tmp_path: Path, words: list[str]) -> None:
    tried = run(tmp_path, *words)
    assert tried.returncode == 2
    assert "--jobs" in tried.stderr or "no such option" in tried.stderr
