"""Real pilots in a small file system: they are given jobs that ask for no more disk than it has free."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.why import Why
from tests.instance import Instance, started, until

pytestmark = pytest.mark.slow

SIZE = 1500
"""MB of the file system."""


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def pool(tmp_path: Path, scratch: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path, processors=1)
    instance.environment["TMPDIR"] = str(scratch)
    instance.forked = False  # The folder of a process for temporary files is found once.
    with started(instance):
        yield instance


def test_a_pilot_is_given_the_jobs_that_its_disk_has_room_for(pool: Instance) -> None:
    client = pool.client()
    large = client.submit({"executable": "true", "disk": 2048}).first

    def refused() -> Why | None:
        answer = client.why(large)
        return answer if answer.reason == "needs" else None

    answer = until(refused, what=f"why job {large} waits")
    assert answer.detail == "disk"
    assert "more disk is requested than a node has free" in answer.summary
    assert [opening.text for opening in answer.openings] == ["disk <= 1024 MB"]
    # The pilot of this job asks for more when it has ended, and has no room for the large one.
    smaller = client.submit({"executable": "true", "disk": 1024}).first
    pool.reaches(smaller, "Done")
    filling = {"executable": "sh", "arguments": ["-c", "head -c 700M /dev/zero > file"]}
    pool.reaches(client.submit({**filling, "disk": 1024}).first, "Done")
    pool.reaches(client.submit({"executable": "true", "disk": 1024}).first, "Done")
    assert pool.job(large).state == "Waiting"
    assert client.why(large).detail == "disk"
