"""Submission against a real server: what it is warned of, and what its jobs get."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("submission")) as found:
        yield found


def pilotage(
    instance: Instance, folder: Path, *words: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage.main", *map(str, words), "--home", str(instance.home)]
    if "--" in words:
        place = words.index("--")
        command[3:] = [*map(str, words[:place]), "--home", str(instance.home), *map(str, words[place:])]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


IMPOSSIBLE = """\
executable: "true"
tags: [GPU-that-nobody-has]
platforms: [el4]
requirements: Memory > 10000000
processors: 512
banned_sites: [nowhere]
pilot_types: [private]
arguments: ["%s"]
"""


def test_a_dry_run_tells_what_the_submission_tells_and_stores_nothing(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(IMPOSSIBLE)
    before = [job.id for job in instance.client().jobs()]
    trial = pilotage(instance, tmp_path, "submit", "--dry-run", "job.yaml")
    assert trial.returncode == 0
    assert [job.id for job in instance.client().jobs()] == before
    real = pilotage(instance, tmp_path, "submit", "job.yaml")
    assert real.returncode == 0
    assert trial.stderr == real.stderr
    warnings = real.stderr.splitlines()
    assert len(warnings) == 4
    for part in (
        "the tag GPU-that-nobody-has",
        "the platform el4",
        "512 processors",
        "Requirements",
        "private",
    ):
        assert part in warnings[3]
    job = max(job.id for job in instance.client().jobs())
    assert job not in before
    instance.client().kill([job])


def test_a_dry_run_is_refused_as_the_submission_is(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "job.jdl").write_text('Executable = "true"; Site = {"mars", "venus"}; GridCE = "none";')
    trial = pilotage(instance, tmp_path, "submit", "--dry-run", "job.jdl")
    real = pilotage(instance, tmp_path, "submit", "job.jdl")
    assert (trial.returncode, trial.stderr) == (real.returncode, real.stderr)
    assert real.returncode == 2
    for part in (
        "3 mistakes",
        "Site: there is no mars",
        "Site: there is no venus",
        "GridCE: there is no none",
    ):
        assert part in real.stderr


def test_exported_variables_and_named_files_reach_the_job_as_they_are(
    instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text(
        "import json, os, sys\n"
        "names = ('ODD', 'PLAIN', 'LEFT', 'VIRTUAL_ENV')\n"
        "print(json.dumps([{n: os.environ.get(n) for n in names}, open(sys.argv[1]).read()]))\n"
    )
    (tmp_path / "data.txt").write_text("data")
    odd = "a b;$(touch pwned) `id` 'x' \"y\" * \\ é"
    here = {"PATH": "/usr/bin:/bin", "ODD": odd, "PLAIN": "p", "LEFT": "l", "VIRTUAL_ENV": "/venv"}
    words = (
        "submit",
        "--json",
        "--export",
        "ODD,PLAIN",
        "--setup",
        "true",
        "--",
        "python3",
        "show.py",
        "data.txt",
    )
    sent = pilotage(instance, tmp_path, *words, environment=here)
    assert sent.returncode == 0, sent.stderr
    assert "sending show.py, data.txt" in sent.stderr
    job = json.loads(sent.stdout)["submissions"][0]["first"]
    instance.reaches(job, "Done")
    found: Any = json.loads(instance.client().log(job).data)
    assert found == [{"ODD": odd, "PLAIN": "p", "LEFT": None, "VIRTUAL_ENV": None}, "data"]
