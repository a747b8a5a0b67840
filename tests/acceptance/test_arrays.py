"""Arrays, limits of submissions and holds with real servers and pilots, and the words of their commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("arrays")) as one:
        yield one


def submitted(instance: Instance, *words: str) -> list[int]:
    """The ids of new jobs, which are all of their submission."""
    done = instance.cli("submit", "--parsable", *words)
    assert done.returncode == 0, done.stderr
    first, _, last = done.stdout.strip().partition("-")
    return list(range(int(first), int(last or first) + 1))


def submission_of(instance: Instance, job: int) -> int:
    [found] = instance.client().jobs(Selection(ids=[job]))
    return found.submission


def test_each_job_of_an_array_has_its_number_and_no_more_run_than_allowed(
    instance: Instance, tmp_path: Path
) -> None:
    """A job that finds the folder of another one writes that they overlap."""
    seen, lock = tmp_path / "seen", tmp_path / "lock"
    script = f"mkdir {lock} || echo overlap >> {seen}; echo $0 $PILOTAGE_ARRAY_INDEX >> {seen}; rmdir {lock}"
    jobs = submitted(instance, "--array", "3-12:3%1", "--", "sh", "-c", script, "%s")
    for job in jobs:
        instance.reaches(job, "Done")
    assert sorted(seen.read_text().splitlines()) == ["12 12", "3 3", "6 6", "9 9"]


def test_why_and_show_tell_of_the_limit(instance: Instance) -> None:
    jobs = submitted(instance, "--array", "0-4%2", "--tag", "nowhere", "--", "true")
    submission = submission_of(instance, jobs[0])
    instance.reaches(jobs[1], "Waiting")
    why = instance.cli("why", str(jobs[4])).stdout
    assert f"2 of 2 jobs of submission {submission} run or wait for a pilot" in why
    assert f"pilotage submission parallel {submission} N" in why
    after = submitted(instance, "--after", str(jobs[4]), "--", "true")[0]
    assert "2 of 2 jobs" in instance.cli("why", str(after)).stdout
    changed = instance.cli("submission", "parallel", str(submission), "3")
    assert changed.stdout == f"submission {submission}: at most 3 jobs at once\n"
    instance.reaches(jobs[2], "Waiting")
    listed = json.loads(instance.cli("--json", "submission", "list").stdout)["submissions"]
    [row] = [row for row in listed if row["id"] == submission]
    assert (row["parallel"], row["count"], row["states"]) == (3, 5, {"Blocked": 2, "Waiting": 3})
    lifted = instance.cli("submission", "parallel", str(submission), "none")
    assert lifted.stdout == f"submission {submission}: any number of jobs at once\n"
    instance.reaches(jobs[4], "Waiting")
    killed = instance.cli("submission", "kill", str(submission), "-y")
    assert killed.stdout == "5 of 5 jobs killed\n"


def test_held_jobs_run_after_their_release(instance: Instance) -> None:
    [job] = submitted(instance, "--hold", "--", "true")
    assert instance.reaches(job, "Held").reason == ""
    submission = submission_of(instance, job)
    assert instance.cli("release", str(job)).stdout == "1 of 1 job released\n"
    instance.reaches(job, "Done")
    refused = instance.cli("hold", str(job))
    assert refused.returncode != 0
    assert "the job is already Done" in refused.stderr
    jobs = submitted(instance, "--count", "3", "--tag", "nowhere", "--", "true")
    submission = submission_of(instance, jobs[0])
    held = instance.cli("submission", "hold", str(submission), "--reason", "the input is bad")
    assert held.stdout == "3 of 3 jobs held\n"
    why = instance.cli("why", str(jobs[0])).stdout
    assert f"job {jobs[0]} is held by " in why
    assert "the input is bad" in why
    assert f"pilotage release {jobs[0]}" in why
    assert instance.cli("submission", "release", str(submission)).stdout == "3 of 3 jobs released\n"
    instance.cli("submission", "kill", str(submission), "-y")


def test_a_submission_gets_another_priority(instance: Instance) -> None:
    jobs = submitted(instance, "--count", "3", "--tag", "nowhere", "--", "true")
    submission = str(submission_of(instance, jobs[0]))
    counted = instance.cli("submission", "priority", submission, "8", "--dry-run")
    assert counted.stdout == "3 of 3 jobs would be given priority 8\n"
    given = instance.cli("submission", "priority", submission, "8", "--reason", "for the talk")
    assert given.stdout == "3 of 3 jobs given priority 8\n"
    detail = instance.client().job(jobs[0])
    assert (detail.job.user_priority, detail.description["user_priority"]) == (8, 8)
    assert "priority 1 to 8: for the talk" in instance.cli("status", str(jobs[0]), "--events").stdout
    assert instance.cli("priority", str(jobs[0]), "2").stdout == "1 of 1 job given priority 2\n"
    for bad in ("11", "-1", "high"):
        refused = instance.cli("priority", str(jobs[0]), "--", bad)
        assert (refused.returncode, f"{bad} is not a priority" in refused.stderr) == (2, True)
    assert instance.cli("submission", "priority", "999", "3").returncode == 4
    instance.cli("submission", "kill", submission, "-y")
    ended = instance.cli("priority", str(jobs[0]), "3")
    assert "the job is already Killed" in ended.stderr


def test_failures_are_grouped_by_their_reason(instance: Instance) -> None:
    jobs = submitted(instance, "--array", "0-3", "--", "sh", "-c", "echo no such file $0 >&2; exit 4", "%s")
    for job in jobs:
        instance.reaches(job, "Failed")
    shown = instance.cli("submission", "show", str(submission_of(instance, jobs[0]))).stdout
    assert "4 of 4 jobs ended: 4 Failed" in shown
    assert "4 x exit code 4" in shown
    assert f"no such file {jobs[-1] - jobs[0]}" in shown


@pytest.mark.parametrize("array", ["0-9%0", "9-0", "-5", "0-9999999", "1,1", "a"])
def test_bad_arrays_are_refused(instance: Instance, array: str) -> None:
    done = instance.cli("submit", f"--array={array}", "--", "true")
    assert done.returncode == 2
    assert f"array {array}" in done.stderr


def test_servers_killed_again_and_again_keep_the_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo + >> {log}; sleep 0.2; echo - >> {log}"
    with running(tmp_path, lease=20, heartbeat=0.5) as instance:
        jobs = submitted(instance, "--array", "1-20%2", "--", "sh", "-c", script)
        everything = Selection(ids=jobs)
        for part in (4, 12):
            until(lambda part=part: instance.client().counts(everything).final >= part, what="progress")
            instance.kill_server()
            instance.start()
        until(lambda: instance.client().counts(everything).final == 20, within=2 * PATIENCE, what="the end")
        instance.close()
        assert audit(instance.home) == {"Done": 20}
    running_now = list(accumulate(1 if line == "+" else -1 for line in log.read_text().split()))
    assert len(running_now) == 40
    assert max(running_now) <= 2
