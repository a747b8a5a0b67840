"""Outputs of jobs in a bucket of a real S3 service, and what faults of the service and of the server do to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, output_of, running, until
from tests.s3 import FaultyLine, S3Server

pytestmark = pytest.mark.slow

SANDBOXES = """
[sandboxes]
storage = "files"
"""
WRITES = "seq 9000; echo $1 > result.txt; mkdir -p deep; echo more > 'deep/a b'"
"""Standard output that is too large for a message, and two files."""


@pytest.fixture
def instance(s3: S3Server, line: FaultyLine, tmp_path: Path) -> Iterator[Instance]:
    for key in s3.keys("own/"):
        assert s3.request("remove", f"{s3.address}/{key}").is_success
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy += SANDBOXES + line.table("files", "own")
        instance.apply()
        yield instance


def submit(instance: Instance, word: str = "one") -> int:
    options = ("--output", "result.txt", "--output", "deep/*")
    return int(
        output_of(instance, "submit", "--parsable", *options, "--", "/bin/sh", "-c", WRITES, "sh", word)
    )


def names_in_folder(instance: Instance) -> list[str]:
    """The outputs in the server's own folder."""
    folder = instance.home / "sandboxes" / "outputs"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def fetched(instance: Instance, job: int, folder: Path) -> dict[str, str]:
    """The outputs of a job, as its owner gets them."""
    output_of(instance, "output", str(job), "--dir", str(folder))
    own = folder / str(job)
    files = [path for path in own.rglob("*") if path.is_file()]
    return {str(path.relative_to(own)): path.read_text() for path in files}


def expected(word: str) -> dict[str, str]:
    lines = "".join(f"{number}\n" for number in range(1, 9001))
    return {"stdout": lines, "stderr": "", "result.txt": f"{word}\n", "deep/a b": "more\n"}


def assert_whole(instance: Instance, job: int, folder: Path, word: str = "one") -> None:
    found = fetched(instance, job, folder)
    assert {name: found.get(name, "") for name in expected(word)} == expected(word)


def test_outputs_lie_in_the_bucket_and_both_switches_keep_what_is_there(
    instance: Instance, s3: S3Server, tmp_path: Path
) -> None:
    job = submit(instance)
    instance.reaches(job, "Done")
    ends = sorted(key.split(f"/outputs/{job}/1/")[1] for key in s3.keys("own/sandboxes/"))
    assert ends == ["deep/a b", "result.txt", "stdout"]
    assert names_in_folder(instance) == []
    assert_whole(instance, job, tmp_path / "got")
    assert output_of(instance, "logs", str(job)) == expected("one")["stdout"]
    # The folder again: its files and those of the bucket can be read.
    instance.policy = instance.policy.replace(SANDBOXES, "")
    instance.apply()
    second = submit(instance, "two")
    instance.reaches(second, "Done")
    assert names_in_folder(instance) == ["a b", "result.txt", "stdout"]
    assert_whole(instance, job, tmp_path / "again")
    assert_whole(instance, second, tmp_path / "second", "two")
    output_of(instance, "delete", str(job), "-y")
    assert s3.keys("own/sandboxes/") == []


def test_an_output_in_the_bucket_is_an_input_of_another_job(instance: Instance) -> None:
    parent = submit(instance)
    inputs = ("--input", f"job:{parent}/deep/a b=word", "--input", f"job:{parent}/stdout=lines")
    words = ("submit", "--parsable", *inputs, "--", "sh", "-c", "cat word; wc -l < lines")
    child = int(output_of(instance, *words))
    instance.reaches(child, "Done")
    assert output_of(instance, "logs", str(child)).split() == ["more", "9000"]


def test_a_job_that_ends_while_the_service_is_away_waits_for_it(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    s3.kill()
    before = line.connections
    job = submit(instance)
    until(lambda: line.connections > before + 2 or None, what="the pilot tries")
    s3.start()
    instance.reaches(job, "Done")
    assert names_in_folder(instance) == []
    assert_whole(instance, job, tmp_path / "got")


def test_a_service_that_stays_away_loses_no_output(s3: S3Server, line: FaultyLine, tmp_path: Path) -> None:
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy += SANDBOXES + line.table("files", "own", patience=0.0)
        instance.apply()
        line.refuses = True
        job = submit(instance)
        instance.reaches(job, "Done")
        assert names_in_folder(instance) == ["a b", "result.txt", "stdout"]
        assert_whole(instance, job, tmp_path / "got")


def test_a_server_that_is_killed_before_the_record_loses_and_doubles_nothing(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    line.hold = b"HEAD /data/own/"
    job = submit(instance)
    assert line.held.wait(PATIENCE), "the file is stored, and the server asks for it"
    instance.kill_server()
    line.go_on.set()
    instance.start()
    instance.reaches(job, "Done")
    assert_whole(instance, job, tmp_path / "got")
    assert len(s3.keys("own/sandboxes/")) == 3
    output_of(instance, "delete", str(job), "-y")
    assert s3.keys("own/sandboxes/") == []


def test_bytes_that_change_are_never_given_out(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    line.hold = b"HEAD /data/own/"
    job = submit(instance)
    assert line.held.wait(PATIENCE)
    [key] = s3.keys("own/sandboxes/")
    s3.put(key, b"other contents")
    line.go_on.set()
    instance.reaches(job, "Done")
    assert_whole(instance, job, tmp_path / "got")
    # After the end of the job too.
    second = submit(instance, "two")
    instance.reaches(second, "Done")
    [changed] = [key for key in s3.keys("own/sandboxes/") if key.endswith(f"/{second}/1/result.txt")]
    s3.put(changed, b"two!")
    done = instance.cli("output", str(second), "--dir", str(tmp_path / "second"))
    assert done.returncode != 0
    assert "result.txt" in done.stdout + done.stderr
    assert "two!" not in "".join(path.read_text() for path in (tmp_path / "second").rglob("result.txt"))


def test_people_cannot_read_sandboxes_as_files_of_a_data_set(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    job = submit(instance)
    instance.reaches(job, "Done")
    [key] = [key for key in s3.keys("own/sandboxes/") if key.endswith("/result.txt")]
    folder, _, name = f"{line.address}/{key}".rpartition("/")
    (tmp_path / "set.json").write_text(json.dumps({"replicas": {"*": folder}, "files": [name]}))
    output_of(instance, "dataset", "add", "stolen", str(tmp_path / "set.json"), "--close")
    (tmp_path / "request.toml").write_text(
        'name = "steal"\nteam = "home"\ninput = "stolen"\n[retry]\nmax_retries = 0\n[program]\n'
        'executable = "/bin/true"\n'
        '[splitting]\nalgorithm = "FileBased"\nfiles_per_job = 1\n[output]\nfiles = ["x"]\n'
    )
    output_of(instance, "request", "submit", str(tmp_path / "request.toml"))
    assert instance.cli("request", "wait", "1", "--timeout", f"{PATIENCE:g}s").returncode != 0
    assert "of a sandbox" in " ".join(output_of(instance, "request", "show", "1").split())
