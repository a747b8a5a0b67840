"""Jobs in place with real pilots of two CEs, of which one shares the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.client.in_place import folder_fields
from tests.instance import Instance, started, until

pytestmark = pytest.mark.slow

CES = """
[ces.sharing]
site = "here"
owners = "home"
processors = 2
memory = 4000
heartbeat = 0.5
lease = 60
idle = 2
shared_folders = ["{folder}"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def pool(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("pool"))
    instance.policy += CES.format(folder=folder)
    with started(instance):
        yield instance


def work(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


def test_an_array_runs_where_it_was_submitted(pool: Instance, folder: Path) -> None:
    here = work(folder, "array")
    (here / "step.sh").write_text('echo "$1 $PWD"; echo made > "made-$1"; echo err >&2\n')
    words = ("--array", "1-5", "--stdout", "out-%A_%a", "--wait", "--", "bash", "step.sh", "%s")
    done = pool.cli("submit", "--here", *words, cwd=str(here))
    assert done.returncode == 0, done.stderr
    jobs = list(pool.client().jobs())[-5:]
    first = min(job.id for job in jobs)
    for number in range(1, 6):
        assert (here / f"out-{first}_{number}").read_text() == f"{number} {here}\nerr\n"
        assert (here / f"made-{number}").read_text() == "made\n"
    assert {job.ce for job in jobs} == {"sharing"}
    assert len(list(here.iterdir())) == 11
    assert pool.cli("logs", str(first)).stdout.startswith("1 ")


def test_two_jobs_append_to_one_file(pool: Instance, folder: Path) -> None:
    here = work(folder, "append")
    (here / "out").write_text("before\n")
    described = {
        "executable": "echo",
        "arguments": ["line"],
        "stdout_file": "out",
        "open_mode": "append",
        **folder_fields(here),
    }
    jobs = [pool.client().submit(described).first for _ in range(2)]
    for job in jobs:
        pool.reaches(job, "Done")
    assert (here / "out").read_text() == "before\nline\nline\n"
    assert pool.cli("logs", str(jobs[1])).stdout == "line\n"


def test_a_removed_folder_and_an_unwritable_file_fail_the_job(pool: Instance, folder: Path) -> None:
    gone, kept = work(folder, "gone"), work(folder, "kept")
    described = {"executable": "true", **folder_fields(gone)}
    gone.rmdir()
    unwritable = {"executable": "true", **folder_fields(kept), "stdout_file": "absent/out"}
    for what, told in ((described, "does not exist any more"), (unwritable, "absent/out")):
        job = pool.client().submit(what).first
        pool.reaches(job, "Failed")
        assert told in pool.cli("status", str(job)).stdout


def test_a_folder_that_is_not_shared_after_all_costs_the_job_nothing(pool: Instance, folder: Path) -> None:
    here = work(folder, "other")
    client = pool.client()
    described = {"executable": "true", **folder_fields(here), "folder_mark": "ino:1/2"}
    job = client.submit(described).first
    until(lambda: "released" in pool.events(job), what=f"the return of job {job}")
    # Another folder is not concerned, and the host is not tried again.
    pool.reaches(client.submit({"executable": "true", **folder_fields(folder)}).first, "Done")
    assert pool.job(job).state == "Waiting"
    assert pool.events(job).count("released") == 1


def test_a_folder_that_no_ce_shares_is_told(pool: Instance, tmp_path: Path) -> None:
    done = pool.cli("submit", "--here", "--", "true", cwd=str(tmp_path))
    assert f"no CE shares {tmp_path}" in done.stderr
