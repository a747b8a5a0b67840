"""The test suites of programs for Slurm, as their wheels have them, on Slurm's commands of Pilotage."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.acceptance.test_slurm_commands import Shell, shared
from tests.deadlines import PATIENCE
from tests.instance import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(12 * PATIENCE)]

ROOT: Final = Path(__file__).parents[2]
NOT_OF_DASK: Final = {
    "test_adapt": "it takes for granted that the cluster has stopped adapting as soon as no worker is left",
    "test_security": "its wheel lacks the key that it reads",
    "test_different_interfaces_on_scheduler_and_workers": "it names network interfaces of its containers",
    "test_slurm_runner": "it writes to a fixed folder of the machine",
}
"""Tests that fail or cannot run on a Slurm as well, or that are a race on a slow machine."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(tmp_path, idle=60, processors=8) as instance:
        shared(instance)
        folder = tmp_path / "work"
        folder.mkdir()
        yield Shell(instance, folder)


def outcomes(shell: Shell, plugin: str, *words: str, **variables: str) -> dict[str, str]:
    """By the name of a test: passed, skipped, failure or error. `words`: of the command line of pytest."""
    report = shell.folder / "report.xml"
    plugins = [word for name in ("cacheprovider", "xdist", "timeout") for word in ("-p", f"no:{name}")]
    program = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugins,
        "-p",
        plugin,
        "--noconftest",
        "-c",
        "/dev/null",
    ]
    # Limits of the suites are for an idle cluster. A variable is stronger than the lines of a script.
    path = f"{shell.commands}:{Path(sys.executable).parent}:{shell.environment['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "SBATCH_TIMELIMIT": "60", **variables}
    with (shell.folder / "suite.log").open("w") as log:
        subprocess.run(
            [*program, f"--rootdir={shell.folder}", f"--junitxml={report}", *words],
            cwd=shell.folder,
            env=shell.environment | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=10 * PATIENCE,
            check=False,
        )
    assert report.exists(), (shell.folder / "suite.log").read_text()
    return {
        str(case.get("name")): next((one.tag for one in case if one.tag in _ENDS), "passed")
        for case in ElementTree.parse(report).iter("testcase")
    }


_ENDS: Final = ("failure", "error", "skipped")


def assert_passed(shell: Shell, found: Mapping[str, str], least: int) -> None:
    bad = {name: end for name, end in found.items() if end in ("failure", "error")}
    assert not bad, f"{bad}\n{(shell.folder / 'suite.log').read_text()[-20_000:]}"
    assert Counter(found.values())["passed"] >= least, found


def package(name: str, program: str) -> Path:
    pytest.importorskip(name, reason=f"the group `clients` is not installed: {program} is not tested")
    file = importlib.import_module(name).__file__
    assert file is not None
    return Path(file).parent


def test_the_suite_of_dask_jobqueue(shell: Shell) -> None:
    suite = package("dask_jobqueue", "Dask-jobqueue") / "tests"
    patience = f"{PATIENCE:.0f}"
    found = outcomes(
        shell,
        "tests.dask_suite",
        *(str(suite / name) for name in ("test_job.py", "test_jobqueue_core.py", "test_slurm.py")),
        PILOTAGE_TEST_LEFT_OUT=",".join(NOT_OF_DASK),
        PILOTAGE_TEST_QUEUE_WAIT=patience,
        DASK_JOBQUEUE__SLURM__DEATH_TIMEOUT=patience,
        DASK_JOBQUEUE__SLURM__INTERFACE="lo",
        DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=f"{patience}s",
    )
    assert_passed(shell, found, 6)
