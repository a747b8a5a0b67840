"""What people are told of jobs that ended, by real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("outcome")) as one:
        yield one


def test_a_mistyped_output_is_told(instance: Instance) -> None:
    done = instance.cli("submit", "--wait", "--output", "*.rot", "--", "sh", "-c", "echo x > a.root")
    assert done.returncode == 8, done.stderr
    assert "no file matches the output '*.rot'" in done.stderr
    job = done.stdout.split()[-3]  # submission N: 1 job, J / 1 Done
    for words in (["wait", job], ["output", job, "--dir", str(instance.home / "out")]):
        again = instance.cli(*words)
        assert again.returncode == 8
        assert "*.rot" in again.stderr
    assert "missing outputs\t*.rot" in instance.cli("status", job).stdout


def test_a_failed_job_is_told_with_commands_that_work(instance: Instance) -> None:
    done = instance.cli("submit", "--wait", "--count", "2", "--", "sh", "-c", "echo oh >&2; exit 3")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
    for command in line.removeprefix("next: ").split("; "):
        told = instance.cli(*command.split()[1:])
        assert told.returncode == 0, told.stderr
    assert "oh" in instance.cli(*line.removeprefix("next: ").split("; ")[0].split()[1:]).stdout


def test_one_job_is_shown_with_what_it_asked_for(instance: Instance) -> None:
    words = [
        "--name",
        "sim",
        "--param",
        "energy=5,7",
        "--memory",
        "100MB",
        "--wall-time",
        "10m",
        "--env",
        "A=b c",
    ]
    done = instance.cli("submit", "--json", *words, "--", "echo", "at", "%(energy)s GeV")
    first = json.loads(done.stdout)["submissions"][0]["first"]
    shown = dict(line.split("\t", 1) for line in instance.cli("status", str(first + 1)).stdout.splitlines())
    assert shown["command"] == "echo at '7 GeV'"
    assert shown["parameters"] == "energy=7"
    assert shown["name"] == "sim"
    assert shown["asks for"] == "1 core, 100 MB, 10 min wall"
    assert shown["environment"] == "A='b c'"
    instance.cli("wait", str(first), str(first + 1))


def test_the_newest_are_shown(instance: Instance) -> None:
    instance.cli("submit", "--wait", "--count", "60", "--", "true")
    jobs = json.loads(instance.cli("status", "--state", "Done", "--json").stdout)["jobs"]
    ids = [job["id"] for job in jobs]
    assert len(ids) >= 60, "a program gets the whole list"
    assert ids == sorted(ids, reverse=True)
    words = ("status", "--state", "Done", "--limit", "50", "--json")
    newest = [job["id"] for job in json.loads(instance.cli(*words).stdout)["jobs"]]
    oldest = [job["id"] for job in json.loads(instance.cli(*words, "--oldest").stdout)["jobs"]]
    assert newest == ids[:50]
    assert oldest == sorted(ids)[:50]
