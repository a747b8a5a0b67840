"""The outputs of many jobs by one stream of a real server."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.server.http import output_archive
from pilotage.server.http.output_archive import CHUNK, OutputArchive
from pilotage.store.tables.listing import JobFacts
from pilotage.wire.jobs import OutputFile, Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How to extract an archive; Python before 3.11.4 knows no filters."""

SCRIPT = "mkdir d; echo file {0} > d/data.txt; echo said {0}"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("archive"), owners="any", idle=1) as one:
        yield one


def made(instance: Instance, user: str, count: int) -> list[int]:
    client = instance.client(user)
    description = {
        "executable": "sh",
        "arguments": ["-c", SCRIPT.format("%s")],
        "output_sandbox": ["d/*"],
    }
    sent = client.submit(description, values=list(range(count)))
    until(lambda: client.counts(sent).final == count, what="the jobs' end")
    return list(range(sent.first, sent.last + 1))


@pytest.mark.slow
def test_each_sees_their_own(instance: Instance, tmp_path: Path) -> None:
    alices, bobs = made(instance, "alice", 5), made(instance, "bob", 2)
    reports = {one.job: one for one in instance.client("alice").download_many(alices + bobs, tmp_path)}
    for number, job in enumerate(alices):
        assert reports[job].failed == {}
        assert (tmp_path / str(job) / "d" / "data.txt").read_text() == f"file {number}\n"
        assert (tmp_path / str(job) / "stdout").read_text() == f"said {number}\n"
    for job in bobs:
        assert "no longer exists" in reports[job].failed[""]
        assert not (tmp_path / str(job)).exists()
    url = instance.client().url
    body = {"selection": {"ids": alices}}
    with httpx.Client(base_url=url, timeout=PATIENCE) as raw:
        assert raw.post("/v1/outputs", json=body).status_code == 401
    token = instance.client().create_token("bob").token
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as raw:
        answer = raw.post("/v1/outputs", json=body)
        assert answer.status_code == 200
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            assert archive.getnames() == []
        for wrong in ({}, {"selection": {"ids": ["x"]}}, {"selection": {}, "after": "x"}):
            assert raw.post("/v1/outputs", json=wrong).status_code in (400, 422)


@pytest.mark.slow
def test_any_tar_can_read_it(instance: Instance, tmp_path: Path) -> None:
    jobs = made(instance, "alice", 3)
    token = instance.client().create_token("alice").token
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as raw:
        answer = raw.post(f"{instance.client().url}/v1/outputs", json={"selection": {"ids": jobs}})
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path, **SAFELY)
        told = [json.loads(entry.pax_headers["PILOTAGE.outputs"]) for entry in archive if entry.isdir()]
    assert [(one["id"], one["state"], one["lost"]) for one in told] == [(job, "Done", []) for job in jobs]
    assert (tmp_path / str(jobs[0]) / "d" / "data.txt").read_text() == "file 0\n"


@pytest.mark.slow
def test_the_command(instance: Instance, tmp_path: Path) -> None:
    jobs = made(instance, "", 150)  # more than a page of the server
    words = ["output", f"{jobs[0]}-{jobs[-1]}", "--dir", str(tmp_path / "out"), "--json"]
    done = instance.cli(*words)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["files"]) == 450
    assert len(json.loads(instance.cli(*words).stdout)["kept"]) == 450
    lost = next((instance.home / "sandboxes" / "outputs").glob(f"*/{jobs[1]}/*/d/data.txt"))
    lost.chmod(0o600)
    lost.unlink()
    (tmp_path / "out" / str(jobs[2]) / "stdout").write_text("mine")
    done = instance.cli(*words, "--force")
    assert (tmp_path / "out" / str(jobs[2]) / "stdout").read_text() == "said 2\n"
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == [f"{jobs[1]}/d/data.txt"]


class _Sandbox(DirectorySandbox):
    """Files that shrink and vanish while they are sent."""

    def open_output(self, job: int, epoch: int, name: str) -> Path:
        if name == "gone":
            raise FileNotFoundError(name)
        return self.folder / name


def no_objects(record: ObjectRecord) -> Iterator[bytes]:
    raise AssertionError("all files are in the folder")


def test_memory_is_bounded_and_lost_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = _Sandbox(tmp_path)
    large = 40 * 1024 * 1024 + 17
    for name in ("large", "shrinks", "small"):
        with (tmp_path / name).open("wb") as file:
            os.truncate(file.fileno(), 10 if name == "small" else large)
    outputs = [OutputFile(name, 1) for name in ("gone", "large", "shrinks", "small")]
    facts = JobFacts(7, 1, None, 1, 1, 0, "Done", None, "{}", "[]", "[]", 7, 1, "alice", "physics", None)
    one = output_archive._Job(7, facts, {}, outputs, [])
    monkeypatch.setattr(OutputArchive, "_ids", lambda self, after: [7] if after < 7 else [])
    monkeypatch.setattr(OutputArchive, "_load", lambda self, ids: [one])
    archive = OutputArchive(None, sandbox, None, Selection(), no_objects)  # type: ignore[arg-type]
    body = tmp_path / "body.tar"
    with body.open("wb") as file:
        for chunk in archive.chunks():
            assert len(chunk) <= 3 * CHUNK
            file.write(chunk)
            if file.tell() > large + 5_000_000:
                os.truncate(tmp_path / "shrinks", 1000)
    with tarfile.open(body) as read:
        sizes = {entry.name: entry.size for entry in read}
        assert sizes == {"7/large": large, "7/shrinks": large, "7/small": 10, "7": 0}
        assert json.loads(read.getmember("7").pax_headers["PILOTAGE.outputs"])["lost"] == ["gone", "shrinks"]
