"""Outputs of jobs as inputs of others, with a real server and real pilots, and what cannot be handed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("handed")) as one:
        yield one


def submitted(instance: Instance, *words: str) -> int:
    done = instance.cli("submit", "--parsable", *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("-")[0])


def text_of(instance: Instance, job: int) -> str:
    return instance.cli("logs", str(job)).stdout


def test_a_child_reads_the_output_of_its_parent(instance: Instance) -> None:
    writes = "mkdir deep; head -c 200000 /dev/zero | tr '\\0' 'x' > 'deep/a b'; echo 42"
    parent = submitted(instance, "--hold", "--output", "deep/a b", "--", "sh", "-c", writes)
    child = submitted(
        instance,
        *("--input", f"job:{parent}/deep/a b=in/data", "--input", f"job:{parent}/stdout=answer"),
        *("--", "sh", "-c", "wc -c < in/data; cat answer"),
    )
    instance.cli("release", str(parent))
    instance.reaches(child, "Done")
    assert text_of(instance, child).split() == ["200000", "42"]
    assert instance.events(child)[:2] == ["submitted", "unblocked"]
    again = submitted(instance, "--input", f"job:{parent}/stdout=in", "--", "cat", "in")
    assert instance.reaches(again, "Done").exit_code == 0


def test_the_try_that_counts_gives_the_file(instance: Instance, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"test -e {mark} && echo second > out && exit; touch {mark}; echo first > out; exit 3"
    parent = submitted(instance, "--hold", "--output", "out", "--", "sh", "-c", script)
    child = submitted(instance, "--input", f"job:{parent}/out=in", "--", "cat", "in")
    instance.cli("release", str(parent))
    assert instance.reaches(child, "Skipped").reason == f"job {parent} failed (exit 3)"
    instance.cli("reschedule", str(parent))
    instance.reaches(child, "Done")
    assert text_of(instance, child) == "second\n"


def test_a_done_parent_without_the_file_is_redone(instance: Instance, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"test -e {mark} && echo second > out; touch {mark}"
    parent = submitted(instance, "--hold", "--output", "out", "--", "sh", "-c", script)
    child = submitted(instance, "--input", f"job:{parent}/out=in", "--", "cat", "in")
    instance.cli("release", str(parent))
    assert instance.reaches(child, "Skipped").reason == f"job {parent} has no output out"
    refused = instance.cli("reschedule", str(parent))
    assert (refused.returncode, f"`pilotage reschedule --done {parent}`" in refused.stderr) == (5, True)
    redone = instance.cli("reschedule", "--done", str(parent))
    assert (redone.returncode, redone.stdout) == (0, "1 of 1 job rescheduled\n")
    instance.reaches(child, "Done")
    assert text_of(instance, child) == "second\n"


def test_a_parent_without_the_file_is_told(instance: Instance) -> None:
    parent = submitted(instance, "--hold", "--output", "out*", "--", "true")
    child = submitted(instance, "--input", f"job:{parent}/out=in", "--", "cat", "in")
    instance.cli("release", str(parent))
    reason = f"job {parent} has no output out"
    assert instance.reaches(child, "Skipped").reason == reason
    assert reason in instance.client().why(child).summary
    refused = instance.cli("submit", "--input", f"job:{parent}/out=in", "--", "cat", "in")
    assert (refused.returncode, reason in refused.stderr) == (2, True)


def test_an_output_that_is_deleted_before_its_reader_starts(instance: Instance) -> None:
    client = instance.client()
    parent = submitted(instance, "--output", "out", "--", "sh", "-c", "echo 1 > out")
    instance.reaches(parent, "Done")
    child = submitted(instance, "--hold", "--input", f"job:{parent}/out=in", "--", "cat", "in")
    client.delete([parent])
    client.release([child])
    assert f"job {parent} has no output out" in instance.reaches(child, "Failed").reason


GRAPH = """
jobs:
  merge: {executable: cat, arguments: [in.json], input_sandbox: ["job:prepare/result.json=in.json"]}
  prepare: {executable: sh, arguments: ["-c", "echo 17 > result.json"], output_sandbox: [result.json]}
"""


def test_jobs_of_a_document_are_named(instance: Instance, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(GRAPH)
    done = instance.cli("submit", "--wait", "--json", str(path))
    report = json.loads(done.stdout)
    assert report["states"] == {"Done": 2}, done.stderr
    merge = report["submissions"][-1]["first"]
    assert text_of(instance, merge) == "17\n"
    path.write_text(GRAPH.replace("result.json]}", "result.json], input_sandbox: ['job:merge/stdout']}"))
    cycle = instance.cli("submit", str(path))
    assert "wait for each other: merge after prepare after merge" in cycle.stderr


def test_what_cannot_be_handed_over_is_refused(instance: Instance) -> None:
    client = instance.client()
    foreign = instance.client("bob").submit({"executable": "true", "tags": ["nowhere"]})
    deleted = client.submit({"executable": "true", "tags": ["nowhere"]})
    client.kill([deleted.first])
    client.delete([deleted.first])
    for source, words in (
        (f"{foreign.first}/stdout", "has no job"),
        ("999999/stdout", "has no job 999999"),
        (f"{deleted.first}/stdout", "is deleted"),
        ("prepare/stdout", "not the id of a job"),
        (f"{foreign.first}/../../token", "outside of the job's folder"),
        (f"{foreign.first}//etc/passwd", "absolute path"),
    ):
        with pytest.raises(InvalidInput, match=words):
            client.submit({"executable": "true", "input_sandbox": [f"job:{source}=in"]})
