"""Jobs once more: with the files as they are now, or as they were stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.wire.jobs import Selection
from pilotage.wire.submissions import Parameters
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
    refused = instance.cli("reschedule", str(first + 2), cwd=tmp_path)
    assert "the job is Superseded: only failed and killed jobs" in refused.stderr
    script(tmp_path, "exit 4")
    _, job = submitted(instance, tmp_path, "--", "./run.sh")
    script(tmp_path, "exit 0")
    assert instance.cli("reschedule", str(job), cwd=tmp_path).returncode == 0
    assert instance.cli("wait", str(job)).returncode == 1, "reschedule runs the stored file, which fails"


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


def test_the_files_of_single_jobs_are_the_current_ones(instance: Instance, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "b"):
        (data / f"{name}.txt").write_text(f"old {name}\n")
    values = ("--param", "which=a,b", "-i", "data/%(which)s.txt=in.txt")
    old, _ = submitted(instance, tmp_path, *values, "--", "cat", "in.txt")
    (data / "b.txt").write_text("new b\n")
    done = instance.cli("rerun", "--wait", "-s", str(old), cwd=tmp_path)
    assert "inputs changed, taken from this folder: data/b.txt" in done.stderr
    assert "inputs unchanged, taken from this folder: data/a.txt" in done.stderr
    assert "earlier submission" not in done.stderr
    assert printed(instance, old + 1) == ["old a\n", "new b\n"]
    (data / "a.txt").unlink()
    done = instance.cli("rerun", "--wait", "-s", str(old), cwd=tmp_path)
    assert "not in this folder, taken from the earlier submission: data/a.txt" in done.stderr
    assert printed(instance, old + 2) == ["old a\n", "new b\n"]
    (tmp_path / "own-a").write_text("own a\n")
    (tmp_path / "own-b").write_text("own b\n")
    number = rerun(instance, tmp_path, "-s", str(old + 2), "-i", "own-%(which)s=in.txt")
    assert printed(instance, number) == ["own a\n", "own b\n"]
    assert (
        printed(instance, rerun(instance, tmp_path, "-s", str(number), "-i", "own-a=in.txt"))
        == ["own a\n"] * 2
    )


def test_a_file_sent_under_another_name_is_taken_from_its_path(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("another file\n")
    (tmp_path / "first").write_text("first\n")
    old, _ = submitted(instance, tmp_path, "-i", "first=in", "--", "cat", "in")
    (tmp_path / "first").write_text("second\n")
    assert printed(instance, rerun(instance, tmp_path, "-s", str(old))) == ["second\n"]


def test_failed_jobs_are_offered_once(instance: Instance, tmp_path: Path) -> None:
    script(tmp_path, '[ "$1" -lt 1 ] && exit 3; echo fine')
    old, first = submitted(instance, tmp_path, "--count", "2", "--", "./run.sh", "%s")
    assert instance.cli("wait", "-s", str(old)).returncode == 1
    script(tmp_path, "echo mended")
    done = instance.cli("rerun", "--failed", "-s", str(old), "--wait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [job] = instance.client().jobs([first])
    assert (job.state, job.exit_code, job.reason) == ("Superseded", 3, f"submission {old + 1} runs it again")
    assert instance.client().counts(Selection(submission=old)).states == {"Superseded": 1, "Done": 1}
    again = instance.cli("rerun", "--failed", "-s", str(old), cwd=tmp_path)
    assert (again.returncode, "ran again already" in again.stderr) == (5, True)
    assert instance.cli("wait", "-s", str(old)).returncode == 0
    assert [event.kind for event in instance.client().events(first)][-1] == "superseded"
    assert instance.cli("output", "-s", str(old), "-d", str(tmp_path / "out")).returncode == 0


def test_jobs_that_lack_an_output(instance: Instance, tmp_path: Path) -> None:
    script(tmp_path, '[ "$1" = 0 ] || echo x > result')
    old, first = submitted(instance, tmp_path, "--count", "2", "-o", "result", "--", "./run.sh", "%s")
    script(tmp_path, "echo x > result")
    number = rerun(instance, tmp_path, "--incomplete", "-s", str(old))
    assert [job.name for job in instance.client().jobs(Selection(submission=number))] == ["run.sh"]
    [job] = instance.client().jobs([first])
    assert job.state == "Superseded"
    done = instance.cli("rerun", "--incomplete", "-s", str(old), cwd=tmp_path)
    assert (done.returncode, "lacks an output" in done.stderr) == (5, True)


def test_nobody_supersedes_jobs_of_others(instance: Instance) -> None:
    owner, bob = instance.client(), instance.client("bob")
    sent = owner.submit({"executable": "false"})
    owner.wait(sent)
    again = bob.submit({"executable": "true"}, parameters=Parameters(["@rerun"], [[sent.first]]))
    assert [job.state for job in owner.jobs(sent)] == ["Failed"]
    bob.kill(again)
    for value in (0, -1, "1", 2**63, True, 1.5, None):
        with pytest.raises(InvalidInput):
            bob.submit({"executable": "true"}, parameters=Parameters(["@rerun"], [[value]]))


def test_rerun_refuses_jobs_that_it_cannot_run_again(instance: Instance, tmp_path: Path) -> None:
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
