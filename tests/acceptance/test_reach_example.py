"""examples/reach/run, as somebody who tries several batch systems for the first time calls it, with fewer jobs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import htcondor, rucio, s3, slurm, ssh_server
from tests.acceptance.example_frame import ExampleWords, free_ports, run_example
from tests.deadlines import PATIENCE

RUN = Path(__file__).parents[2] / "examples/reach/run"
CES = ("condor", "local", "slurm")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_example(
        "reach",
        folder,
        *words,
        patience=7 * PATIENCE,
        # As after `su`, whose PATH has no folder sbin.
        PATH="/usr/local/bin:/usr/bin:/bin",
        S3_PORTS=free_ports(10),
        **{name: free_ports(1) for name in ("CONDOR_PORT", "SSH_PORT", "RUCIO_PORT")},
        CONDOR_ROOT=str(htcondor.ROOT),
        RUCIO_VENV=str(rucio.environment_folder()[0]),
        S3_VENV=str(s3.environment_folder()[0]),
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


class TestWords(ExampleWords):
    example = "reach"
