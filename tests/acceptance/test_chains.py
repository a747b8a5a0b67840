"""Chains of jobs with real servers and pilots: conditions, graphs, kills, restarts, refusals, and their words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("chains")) as one:
        yield one


def submitted(instance: Instance, *words: str) -> int:
    done = instance.cli("submit", "--parsable", *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("-")[0])


def test_a_job_starts_after_its_parent(instance: Instance, tmp_path: Path) -> None:
    order = tmp_path / "order"
    first = submitted(instance, "--hold", "--", "sh", "-c", f"echo first >> {order}")
    second = submitted(instance, "--after-ok", str(first), "--", "sh", "-c", f"echo second >> {order}")
    third = submitted(instance, "--after", f"{first},{second}", "--", "sh", "-c", f"echo third >> {order}")
    instance.cli("release", str(first))
    instance.reaches(third, "Done")
    assert order.read_text().split() == ["first", "second", "third"]
    assert instance.events(second)[:2] == ["submitted", "unblocked"]


def test_a_failure_skips_by_its_name_and_exit_code(instance: Instance) -> None:
    parent = submitted(instance, "--", "sh", "-c", "exit 3")
    child = submitted(instance, "--after-ok", str(parent), "--", "echo")
    mourner = submitted(instance, "--after-fail", str(parent), "--", "echo")
    assert instance.reaches(child, "Skipped").reason == f"job {parent} failed (exit 3)"
    instance.reaches(mourner, "Done")
    waited = instance.cli("wait", str(child))
    assert waited.returncode == 1
    assert f"job {child} is Skipped: job {parent} failed (exit 3)" in waited.stderr
    again = instance.cli("rerun", str(parent), "--dry-run")
    assert again.returncode == 0
    refused = instance.cli("reschedule", str(child))
    assert "reschedule the job that it depends on" in refused.stderr


def test_why_names_the_blocker_and_its_own_why(instance: Instance) -> None:
    root = submitted(instance, "--tag", "nowhere", "--", "echo")
    middle = submitted(instance, "--after-ok", str(root), "--", "echo")
    last = submitted(instance, "--after", str(middle), "--", "echo")
    answer = instance.client().why(last)
    assert answer.summary.startswith(f"job {last} waits until job {middle} has ended;")
    assert f"in the end by job {root}" in answer.summary
    assert "nowhere" in answer.summary
    assert [(blocker.parent, blocker.state) for blocker in answer.blockers] == [(f"job {middle}", "Blocked")]
    told = instance.cli("kill", "--dry-run", str(root))
    assert "1 dependent job would be Skipped" in told.stdout
    instance.cli("kill", str(root))
    instance.reaches(middle, "Skipped")
    instance.reaches(last, "Done")


GRAPH = """
memory: 10 MB
jobs:
  merge: {executable: cat, arguments: [total], input_sandbox: [total], after_ok: check}
  check: {executable: "true", parameters: 3, after_each: simulate}
  prepare: {executable: "true"}
  simulate: {executable: "true", parameters: 3, after_ok: prepare}
  mourn: {executable: "true", after_fail: merge}
"""


def test_a_graph_in_one_document(instance: Instance, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(GRAPH)
    (tmp_path / "total").write_text("4")
    done = instance.cli("submit", "--wait", "--json", str(path), "--key", "study")
    report = json.loads(done.stdout)
    assert report["states"] == {"Done": 8, "Skipped": 1}
    assert done.returncode == 1
    again = json.loads(instance.cli("submit", "--json", str(path), "--key", "study").stdout)
    assert [one["submission"] for one in again["submissions"]] == [
        one["submission"] for one in report["submissions"]
    ]
    path.write_text(GRAPH.replace('prepare: {executable: "true"}', "prepare: {executable: a, after: merge}"))
    refused = instance.cli("submit", str(path))
    assert refused.returncode != 0
    assert "wait for each other: merge after check after simulate after prepare after merge" in refused.stderr


def test_what_cannot_be_is_refused_plainly(instance: Instance) -> None:
    client = instance.client()
    foreign = instance.client("bob").submit({"executable": "true", "tags": ["nowhere"]})
    deleted = client.submit({"executable": "true", "tags": ["nowhere"]})
    client.kill([deleted.first])
    client.delete([deleted.first])
    for field in ("after", "after_ok", "after_fail"):
        for parent, words in (
            (999_999, "has no job 999999"),
            (foreign.first, "has no job"),
            (f"s:{foreign.submission}", "has no submission"),
            (deleted.first, "is deleted"),
            ("next", "neither a job nor a submission"),
        ):
            with pytest.raises(InvalidInput, match=words):
                client.submit({"executable": "true", field: parent})
    with pytest.raises(InvalidInput, match="names one submission"):
        client.submit({"executable": "true", "after_each": "12"})
    with pytest.raises(InvalidInput, match=r"makes 100,001 jobs; the limit is 100,000"):
        client.submit_graph(
            {"jobs": {"a": {"executable": "true", "parameters": 100_000}, "b": {"executable": "true"}}}
        )
    with pytest.raises(InvalidInput, match="job a depends on 'c'"):
        client.submit_graph({"jobs": {"a": {"executable": "true", "after": "c"}}})


def test_an_ended_parent_decides_at_once(instance: Instance) -> None:
    client = instance.client()
    parent = client.submit({"executable": "sh", "arguments": ["-c", "exit 2"]})
    client.wait(parent)
    child = client.submit({"executable": "true", "after_ok": f"s:{parent.submission}"})
    reason = instance.reaches(child.first, "Skipped").reason
    assert reason == f"job {parent.first} failed (exit 2), a job of submission {parent.submission}"
    instance.reaches(client.submit({"executable": "true", "after_fail": parent.first}).first, "Done")


def test_servers_killed_again_and_again_lose_no_release(tmp_path: Path) -> None:
    with running(tmp_path, lease=20, heartbeat=0.5) as instance:
        client = instance.client()
        layers = [client.submit({"executable": "true"}, values=list(range(20)))]
        for number in range(5):
            field = "after_each" if number % 2 else "after_ok"
            described = {"executable": "true", field: f"s:{layers[-1].submission}"}
            layers.append(client.submit(described, values=list(range(20))))
        everything = Selection(ids=list(range(layers[0].first, layers[-1].last + 1)))
        for part in (5, 30, 60, 90):
            until(
                lambda part=part: instance.client().counts(everything).final >= part,
                what="progress",
            )
            instance.kill_server()
            instance.start()
        until(lambda: instance.client().counts(everything).final == 120, within=2 * PATIENCE, what="the end")
        instance.close()
        assert audit(instance.home) == {"Done": 120}
