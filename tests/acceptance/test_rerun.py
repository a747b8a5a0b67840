"""Jobs once more: with the files as they are now, or as they were stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.jobs import Selection
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("rerun")) as one:
        yield one


def script(folder: Path, text: str) -> None:
    (folder / "run.sh").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "run.sh").chmod(0o755)


def submitted(instance: Instance, folder: Path, *words: str) -> tuple[int, int]:
    """(submission, its first job) when all its jobs have ended."""
    done = instance.cli("submit", "--wait", "--json", *words, cwd=folder)
    answer = json.loads(done.stdout)["submissions"][0]
    return answer["submission"], answer["first"]


def printed(instance: Instance, submission: int) -> list[str]:
    client = instance.client()
    return [client.log(job.id).data.decode() for job in client.jobs(Selection(submission=submission))]


def rerun(instance: Instance, folder: Path, *words: str) -> int:
    """The new submission."""
    done = instance.cli("rerun", "--json", "--wait", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["submissions"][0]["submission"])


def test_failed_jobs_with_the_mended_file(instance: Instance, tmp_path: Path) -> None:
    """Only those that failed, each with its own value; the others are not touched."""
    script(tmp_path, 'if [ "$1" -gt 1 ]; then exit 3; fi; echo "old $1"')
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    old, first = submitted(instance, tmp_path, "--count", "4", "-i", "data", "--", "./run.sh", "%s")
    script(tmp_path, 'echo "new $1 $(cat data/x)"')
    done = instance.cli("rerun", "-s", str(old), "--failed", "--wait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "changed, taken from this folder: run.sh" in done.stderr
    assert "unchanged, taken from this folder: data/x" in done.stderr
    assert printed(instance, old + 1) == ["new 2 x\n", "new 3 x\n"]
    assert printed(instance, old)[:2] == ["old 0\n", "old 1\n"]
    again = instance.cli("reschedule", str(first + 2), cwd=tmp_path)
    assert again.returncode == 0
    assert instance.cli("wait", str(first + 2)).returncode == 1, (
        "reschedule runs the stored file, which fails"
    )


def test_from_another_folder_the_files_are_as_they_were_sent(instance: Instance, tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    script(here, "cat note; echo $GREETING")
    (here / "note").write_text("as sent\n")
    old, job = submitted(instance, here, "-i", "note", "--env", "GREETING=hello", "--", "./run.sh")
    done = instance.cli("rerun", str(job), "--wait", cwd=elsewhere)
    assert "not in this folder, taken from the earlier submission: " in done.stderr
    assert printed(instance, old + 1) == ["as sent\nhello\n"]
    (elsewhere / "other").write_text("new\n")
    number = rerun(instance, elsewhere, str(job), "-i", "other=note", "--env", "GREETING=bye")
    assert printed(instance, number) == ["new\nbye\n"]


def test_files_of_single_jobs_and_named_parameters(instance: Instance, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"in-{name}.txt").write_text(f"file {name}\n")
    old, _ = submitted(
        instance, tmp_path, "--param", "which=a,b", "-i", "in-%(which)s.txt=in.txt", "--", "cat", "in.txt"
    )
    assert printed(instance, old) == ["file a\n", "file b\n"]
    assert printed(instance, rerun(instance, tmp_path, "-s", str(old))) == ["file a\n", "file b\n"]


def test_what_cannot_be_run_again(instance: Instance, tmp_path: Path) -> None:
    def refused(code: int, word: str, *words: str) -> None:
        done = instance.cli("rerun", *words, cwd=tmp_path)
        assert done.returncode == code, (words, done.stderr)
        assert word in done.stderr
        assert len(done.stderr.splitlines()) <= 3

    old, job = submitted(instance, tmp_path, "--count", "2", "--", "echo", "%n")
    refused(2, "%n", "-s", str(old))
    refused(5, "none of these jobs has failed", "-s", str(old), "--failed")
    refused(4, "no submission 9999", "-s", "9999")
    refused(2, "no jobs are selected")
    submitted(instance, tmp_path, "--", "false")
    refused(2, "use -y to skip the confirmation", "--failed")
    refused(2, "cannot change the parameters", str(job), "--count", "3")
    sent = instance.client().submit({"executable": "sleep", "arguments": ["600"]})
    refused(5, f"job {sent.first} is ", str(sent.first))
    instance.client().kill(sent)
    done = instance.cli("rerun", "--dry-run", str(job), cwd=tmp_path)
    assert done.returncode == 2


def test_a_source_is_for_its_owner(instance: Instance) -> None:
    alice = instance.client("alice")
    sent = alice.submit(
        {"executable": "echo", "arguments": ["%s"], "environment": {"A": "secret"}}, values=[7, 8]
    )
    source = alice.source(sent.submission)
    assert source.description["environment"] == {"A": "secret"}
    assert [(one.job - sent.first, one.values) for one in source.jobs] == [(0, [7]), (1, [8])]
    assert [one.job for one in alice.source(sent.submission, [sent.last]).jobs] == [sent.last]
    for other in (instance.client("bob"), instance.client()):
        with pytest.raises(NotFound):
            other.source(sent.submission)
    alice.kill(sent)
