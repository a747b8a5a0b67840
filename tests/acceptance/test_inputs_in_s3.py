"""Input files of jobs in a bucket of a real S3 service, and what faults of the service do to submissions and jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.uploads import SMALL_FILE
from tests.instance import Instance, running, until
from tests.s3 import FaultyLine, S3Server

pytestmark = pytest.mark.slow

INPUTS = """
[sandboxes]
inputs = "files"
"""
FOLDER = "in/sandboxes/"
SIGNATURE = b"X-Amz-"
"""Without it, the service refuses an address as an expired one."""


@pytest.fixture
def instance(s3: S3Server, line: FaultyLine, tmp_path: Path) -> Iterator[Instance]:
    """Pilots do not wait for the service: what it does not give, they ask the server for."""
    for key in s3.keys("in/"):
        assert s3.request("remove", f"{s3.address}/{key}").is_success
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy += INPUTS + line.table("files", "in", patience=0.0)
        instance.apply()
        yield instance


def cli(instance: Instance, *words: str, **more: Path) -> str:
    done = instance.cli(*words, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_input(folder: Path, word: str) -> Path:
    """A file that is too large to be sent together with others."""
    path = folder / "big"
    path.write_text(f"{word}\n" * (SMALL_FILE // len(word)))
    return path


def words_to_submit(path: Path) -> list[str]:
    return ["submit", "--parsable", "--hold", "--input", str(path), "--", "/usr/bin/sha256sum", path.name]


def submit(instance: Instance, path: Path) -> int:
    """A job that is held. It prints the digest of its input."""
    return int(cli(instance, *words_to_submit(path)))


def assert_has_run(instance: Instance, job: int, path: Path) -> None:
    """The job has run once, with the file as its input."""
    instance.reaches(job, "Done", "Failed")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert cli(instance, "logs", str(job)).split()[0] == digest
    assert instance.events(job).count("offered") == 1


def inputs_in_folder(instance: Instance) -> list[str]:
    return [path.name for path in (instance.home / "sandboxes" / "inputs").rglob("*") if path.is_file()]


def test_inputs_lie_in_the_bucket_and_both_switches_keep_what_is_there(
    instance: Instance, s3: S3Server, tmp_path: Path
) -> None:
    path = make_input(tmp_path, "one")
    first = submit(instance, path)
    assert inputs_in_folder(instance) == []
    [key] = s3.keys(FOLDER)
    assert s3.read(f"{s3.address}/{key}") == path.read_bytes()
    # The folder again, while the job waits.
    instance.policy = instance.policy.replace(INPUTS, "")
    instance.apply()
    second = submit(instance, make_input(tmp_path, "two"))
    assert len(inputs_in_folder(instance)) == 1
    cli(instance, "release", str(first))
    assert_has_run(instance, first, make_input(tmp_path, "one"))
    instance.policy += INPUTS
    instance.apply()
    cli(instance, "release", str(second))
    assert_has_run(instance, second, make_input(tmp_path, "two"))
    # Where the file is not, it is taken as it was sent, and not sent again.
    (tmp_path / "elsewhere").mkdir()
    path.unlink()
    cli(instance, "rerun", str(first), "-y", cwd=tmp_path / "elsewhere")
    assert_has_run(instance, second + 1, make_input(tmp_path, "one"))
    assert s3.keys(FOLDER) == [key]


def test_a_submission_while_the_service_is_away_stores_nothing(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    path = make_input(tmp_path, "one")
    line.refuses = True
    done = instance.cli(*words_to_submit(path))
    assert done.returncode != 0
    assert "cannot be sent: the storage at 127.0.0.1" in done.stderr
    assert "nothing was submitted" in done.stderr
    assert "X-Amz" not in done.stderr
    assert list(instance.client().jobs()) == []
    line.refuses = False
    jobs = []
    for word, cut, spoilt in (
        ("cut", [SMALL_FILE // 2], []),
        ("spoilt", [], [b"spoilt"]),
        ("old", [], [SIGNATURE]),
    ):
        line.cut_upload, line.spoil = cut, spoilt
        jobs.append((submit(instance, make_input(tmp_path, word)), word))
        assert (line.cut_upload, line.spoil) == ([], []), "the fault has happened"
    for job, word in jobs:
        cli(instance, "release", str(job))
        assert_has_run(instance, job, make_input(tmp_path, word))


def test_jobs_get_their_inputs_in_spite_of_faults_of_line_and_service(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    path = make_input(tmp_path, "one")
    job = submit(instance, path)
    s3.kill()
    before = line.connections
    cli(instance, "release", str(job))
    # The pilot asks the service, then the server, and does so again.
    until(lambda: line.connections >= before + 5 or None, what="the pilot tries again")
    s3.start()
    assert_has_run(instance, job, path)
    path = make_input(tmp_path, "cut")
    job = submit(instance, path)
    line.cut_download = [SMALL_FILE // 2]
    cli(instance, "release", str(job))
    assert_has_run(instance, job, path)
    assert line.cut_download == []
    # A node that the service refuses is sent the file by the server.
    path = make_input(tmp_path, "two")
    job = submit(instance, path)
    line.spoil = [SIGNATURE]
    cli(instance, "release", str(job))
    assert_has_run(instance, job, path)
    assert line.spoil == []


def test_bytes_that_change_never_reach_a_job_and_are_sent_again(
    instance: Instance, s3: S3Server, tmp_path: Path
) -> None:
    path = make_input(tmp_path, "one")
    job = submit(instance, path)
    [key] = s3.keys(FOLDER)
    s3.put(key, make_input(tmp_path, "two").read_bytes())
    cli(instance, "release", str(job))
    assert "has the digest" in instance.reaches(job, "Failed").reason
    again = submit(instance, make_input(tmp_path, "one"))
    cli(instance, "release", str(again))
    assert_has_run(instance, again, path)
