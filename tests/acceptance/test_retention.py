"""Jobs that ended long ago, on a real server: asked and acted on as any other, until their time is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.core.errors import NotFound
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

SCRIPT = 'cat data.txt; echo to stderr >&2; echo "$1" > result.txt; [ "$1" = good ]'


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, idle=1) as made:
        yield made


def keep(instance: Instance, **seconds: float) -> None:
    """Apply the tests' policy with this retention. Pilots stay for as long as one may live."""
    lines = "".join(f"{name} = {value}\n" for name, value in seconds.items())
    text = instance.policy.replace("idle =", "wall = 600\nidle =") + f"[retention]\n{lines}"
    instance.client().apply_policy(text)


def metric(instance: Instance, name: str) -> float:
    text = httpx.get(f"{instance.client().url}/metrics", timeout=PATIENCE).text
    [value] = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(value)


def old(instance: Instance, jobs: int) -> None:
    until(lambda: metric(instance, "pilotage_history_jobs") == jobs, what=f"{jobs} jobs in history")
    with closing(sqlite3.connect(f"file:{instance.home}/pilotage.db?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs WHERE ended IS NOT NULL").fetchone() == (0,)


def answers(instance: Instance, jobs: list[int], folder: Path) -> dict[str, Any]:
    """All that can be asked about these jobs."""
    client, found = instance.client(), dict[str, Any]()
    for job in jobs:
        found[f"detail {job}"] = client.job(job)
        found[f"events {job}"] = client.events(job)
        found[f"outputs {job}"] = client.outputs(job)
        found[f"why {job}"] = client.why(job)
        for stream in ("stdout", "stderr"):
            pieces = client.logs(job, stream=stream)
            found[f"{stream} {job}"] = b"".join(piece.data for piece in pieces)
        if found[f"outputs {job}"]:
            client.download(job, folder, force=True)
            found[f"files {job}"] = {p.name: p.read_bytes() for p in (folder / str(job)).iterdir()}
    for selection in (
        Selection(), Selection(ids=jobs), Selection(states=["Failed"]), Selection(submission=1), Selection(site="here"),
        Selection(owner="nobody"), Selection(states=["Waiting"]),
    ):  # fmt: skip
        found[f"list {selection}"] = list(client.jobs(selection))
        found[f"pages {selection}"] = list(client.jobs(selection, page=1))
        found[f"counts {selection}"] = client.counts(selection)
    found["status"] = instance.cli("status", *map(str, jobs), "--json").stdout
    found["accounting"] = client.accounting()
    return found


def submitted(instance: Instance, folder: Path) -> tuple[int, int, int]:
    """A job that is Done, one that Failed, one that was Killed while it waited."""
    (folder / "data.txt").write_text("data\n")
    (folder / "script").write_text(SCRIPT)
    client = instance.client()
    answer = client.submit(
        {
            "executable": "sh", "arguments": ["script", "%s"], "input_sandbox": ["script", "data.txt"],
            "output_sandbox": ["result.txt"],
        },
        folder=folder, values=["good", "bad"],
    )  # fmt: skip
    killed = client.submit({"executable": "true", "tags": ["none has it"]}).first
    client.kill([killed], reason="no longer needed")
    client.wait(Selection(ids=[answer.first, answer.last, killed]))
    return answer.first, answer.last, killed


def test_old_jobs_answer_as_before_and_are_acted_on(instance: Instance, tmp_path: Path) -> None:
    done, failed, killed = jobs = submitted(instance, tmp_path)
    client = instance.client()
    before = answers(instance, [*jobs], tmp_path)
    assert before[f"files {done}"]["result.txt"] == b"good\n"
    assert (before[f"stdout {failed}"], before[f"stderr {failed}"]) == (b"data\n", b"to stderr\n")
    keep(instance, hot=0)
    old(instance, 3)
    after = answers(instance, [*jobs], tmp_path)
    for question, answer in before.items():
        assert after[question] == answer, question
    assert client.wait(Selection(submission=1), timeout=PATIENCE).final == 2
    assert metric(instance, 'pilotage_jobs{state="Failed"}') == 1
    assert metric(instance, "pilotage_retention_last_run_timestamp_seconds") > 1.7e9
    # A server that begins again knows them too.
    instance.kill_server()
    instance.start()
    client = instance.client()
    refused = client.kill(list(jobs)).refused
    assert [(one.job, one.message) for one in refused] == [
        (done, "the job is already Done"), (failed, "the job is already Failed"), (killed, "the job is already Killed"),
    ]  # fmt: skip
    assert client.reschedule([done, failed]).done == 1
    instance.reaches(failed, "Failed")
    until(lambda: client.job(failed).job.attempt == 2, what="the second try")
    instance.reaches(failed, "Failed")
    assert instance.events(failed)[-5:] == ["rescheduled", "requeued", "offered", "confirmed", "finished"]
    old(instance, 3)
    assert client.delete([killed]).done == 1
    assert client.job(killed).job.state == "Deleted"
    old(instance, 3)
    instance.close()
    assert audit(instance.home) == {"Done": 1, "Failed": 1, "Deleted": 1}


def test_jobs_beyond_their_retention_are_deleted_with_their_files(instance: Instance, tmp_path: Path) -> None:
    done, failed, killed = submitted(instance, tmp_path)
    client, sandboxes = instance.client(), instance.home / "sandboxes"
    assert files(sandboxes / "outputs")
    assert len(files(sandboxes / "inputs")) == 2
    accounts = client.accounting()
    keep(instance, hot=0, outputs=0)
    old(instance, 3)
    until(
        lambda: not files(sandboxes / "outputs") and not files(sandboxes / "tails"), what="the end of outputs"
    )
    assert client.job(done).outputs == []
    assert client.log(failed).data == b""
    assert len(files(sandboxes / "inputs")) == 2
    keep(instance, hot=0, outputs=0, jobs=0, events=0, pilots=0, uploads=0)
    until(lambda: metric(instance, "pilotage_history_jobs") == 0, what="the end of the jobs")
    for job in (done, failed, killed):
        with pytest.raises(NotFound):
            client.job(job)
    assert list(client.jobs()) == []
    assert client.counts().total == 0
    # The newest submission stays, without jobs, and names no input.
    until(lambda: not files(sandboxes / "inputs"), what="the end of inputs")
    assert client.accounting() == accounts
    # What is needed again is sent again; no id is given twice, also by the next server.
    again = submitted(instance, tmp_path)
    assert min(again) > max(done, failed, killed)
    until(lambda: metric(instance, "pilotage_history_jobs") == 0, what="the end of these jobs")
    logs = instance.home / "pilots"
    assert len([*logs.glob("*.log")]) >= 2
    until(lambda: not instance.pilot_pids(), what="the end of the pilots")
    until(lambda: all(pilot.ended for pilot in instance.client().pilots()), what="it being known")
    instance.kill_server()
    with closing(sqlite3.connect(instance.home / "pilotage.db")) as connection, connection:
        connection.execute("UPDATE pilots SET ended = ended - 1000")
    instance.start()
    until(lambda: len([*logs.glob("*.log")]) == 1, what="the end of pilots' logs")
    assert len([*instance.client().pilots()]) == 1
    assert instance.client().submit({"executable": "true"}).first > max(again)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
