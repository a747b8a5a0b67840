"""Files on their way: what is taken from a folder, and that nothing is written outside of one."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from pilotage.client import Client
from pilotage.client.inputs import gather_files
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.wire.uploads import bundle_header, split_bundle
from tests.unit.client.fake_server import State, job


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_folder_with_links_inside(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("a")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "same.txt").symlink_to("deep/a.txt")
    (folder / "again").symlink_to("deep")
    files = {file.name: file for file in gather_files([("d", folder)])}
    assert sorted(files) == ["d/again/a.txt", "d/deep/a.txt", "d/run.sh", "d/same.txt"]
    assert files["d/same.txt"].digest == files["d/deep/a.txt"].digest == digest(b"a")
    assert files["d/run.sh"].executable
    assert not files["d/same.txt"].executable


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "out").symlink_to("../secret")
    with pytest.raises(InvalidInput, match="leads out"):
        gather_files([("d", folder)])


def test_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "me").symlink_to(".")
    with pytest.raises(InvalidInput, match="circle"):
        gather_files([("d", tmp_path / "data")])


def test_sockets_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidInput, match="neither"):
        gather_files([("d", folder)])
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "s"))
        with pytest.raises(InvalidInput, match="neither"):
            gather_files([("s", tmp_path / "s")])
    with pytest.raises(InvalidInput, match="No such file"):
        gather_files([("x", tmp_path / "nothing")])


@pytest.mark.parametrize("name", ["", "/x", "../x", "a/../../x", ".", "a\0b"])
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        gather_files([(name, tmp_path)])


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(InvalidInput, match="two inputs"):
        gather_files([("x", tmp_path / "a"), ("x", tmp_path / "b")])


def test_missing_files_are_uploaded_once(client: Client, state: State, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new" * 1_000_000)
    (tmp_path / "twin").write_bytes(b"new" * 1_000_000)
    (tmp_path / "empty").write_bytes(b"")
    state.uploads[digest(b"old")] = b"old"
    names = ["old", "new", "twin", "empty"]
    client.submit({"executable": "true", "input_sandbox": names}, folder=tmp_path)
    assert state.paths("POST")[0] == "/v1/uploads"
    assert sorted(state.paths("PUT")) == sorted(
        f"/v1/uploads/{digest(data)}" for data in (b"new" * 1_000_000, b"")
    )
    request = next(iter(state.submissions.values()))["request"]
    assert [one["name"] for one in request["inputs"]] == names


def test_many_small_files_go_together(client: Client, state: State, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(1100):
        (tmp_path / "d" / f"{number}").write_bytes(b"%d\n" % number * (number % 50))
    (tmp_path / "d" / "large").write_bytes(b"x" * 300_000)
    for number in range(30):
        (tmp_path / "d" / f"m{number}").write_bytes(bytes([number]) * 200_000)
    client.submit({"executable": "true", "input_sandbox": ["d"]}, folder=tmp_path)
    sent = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    assert set(state.uploads.values()) == set(sent.values())
    assert all(digest(data) == name for name, data in state.uploads.items())
    assert len(state.paths("POST")) == 4  # three questions and the submission
    puts = state.paths("PUT")
    assert f"/v1/uploads/{digest(b'x' * 300_000)}" in puts
    assert len(puts) < 10


@pytest.mark.parametrize(
    ("files", "cut", "appended"),
    [
        ([b"", b"one", b"\n1 2\n"], 0, b""),
        ([b"one"], 1, b""),
        ([b"one"], 0, b"x"),
        ([], 0, b"a" * 64 + b" -1\n"),
    ],
)
def test_many_files_in_one_body_are_taken_apart_again(files: list[bytes], cut: int, appended: bytes) -> None:
    body = b"".join(bundle_header(digest(data), len(data)) + data for data in files)
    body = body[: len(body) - cut] + appended
    if not cut and not appended:
        assert split_bundle(body) == [(digest(data), data) for data in files]
        return
    with pytest.raises(ValueError, match=r"at byte|within a file"):
        split_bundle(body)


def test_an_upload_is_tried_again_from_its_beginning(client: Client, state: State, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 3_000_000)
    state.failures = [None, "hang up"]
    client.submit({"executable": "true", "input_sandbox": ["data"]}, folder=tmp_path)
    assert len(state.paths("PUT")) == 2


def test_inputs_of_parameters(client: Client, state: State, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"part-{number}").write_text(str(number))
    client.submit({"executable": "true", "input_sandbox": ["part-%s"]}, values=[1, 2], folder=tmp_path)
    request = next(iter(state.submissions.values()))["request"]
    assert request["inputs"] == []
    assert request["description"]["input_sandbox"][0]["name"] == "part-%s"
    files = [hashlib.sha256(str(number).encode()).hexdigest() + ":1:0" for number in (1, 2)]
    assert request["parameters"] == {"names": ["", "@0"], "rows": [[1, files[0]], [2, files[1]]]}
    assert set(state.uploads.values()) == {b"1", b"2"}


def test_folders_of_parameters(client: Client, state: State, tmp_path: Path) -> None:
    """A folder of each job goes with the submission, if its name differs; under one name it is refused."""
    for number in (1, 2):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "f").write_text(str(number))
    client.submit({"executable": "true", "input_sandbox": ["d%s"]}, values=[1, 2], folder=tmp_path)
    request = next(iter(state.submissions.values()))["request"]
    assert [one["name"] for one in request["inputs"]] == ["d1/f", "d2/f"]
    assert request["parameters"]["names"] == [""]
    item = {"path": "d%s", "name": "d"}
    with pytest.raises(InvalidInput, match="two inputs have the name d/f"):
        client.submit({"executable": "true", "input_sandbox": [item]}, values=[1, 2], folder=tmp_path)


def test_rows_with_files_of_their_own_go_in_chunks_that_the_server_takes(
    client: Client, state: State, tmp_path: Path
) -> None:
    for number in range(1203):
        (tmp_path / f"{number}").write_text(f"content {number % 7}")
    item = {"path": "%s", "name": "in"}
    description = {"executable": "true", "input_sandbox": [item]}
    client.submit_rows(description, range(1203), folder=tmp_path, key="k")
    stream = state.streams["k"]
    assert [len(chunk) for chunk in stream["chunks"]] == [500, 500, 203]
    assert stream["request"]["names"] == ["", "@0"]
    assert len(state.uploads) == 7
    number, value = stream["chunks"][1][3]
    assert (number, value) == (503, hashlib.sha256(f"content {503 % 7}".encode()).hexdigest() + ":9:0")
    state.streams["k"]["open"] = True
    state.requests.clear()
    client.submit_rows(description, range(1203), folder=tmp_path, key="k")
    assert [len(chunk) for chunk in stream["chunks"]] == [500, 500, 203]
    assert "PUT" not in [verb for verb, _ in state.requests]
    (tmp_path / "1000").unlink()
    with pytest.raises(InvalidInput, match=r"row 1,001: cannot read the input .*/1000"):
        client.submit_rows(description, range(1203), folder=tmp_path, key="other")
    assert [len(chunk) for chunk in state.streams["other"]["chunks"]] == [500]


def test_a_job_file_and_its_folder(client: Client, state: State, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo")
    (tmp_path / "job.jdl").write_text('Executable = "run.sh"; InputSandbox = {"run.sh"};')
    (tmp_path / "job.yaml").write_text("executable: run.sh\ninput_sandbox: [run.sh]\nparameters: 3\n")
    assert client.submit_file(tmp_path / "job.jdl").count == 1
    assert client.submit_file(tmp_path / "job.yaml", key="k").count == 3
    assert client.submit_file(tmp_path / "job.yaml", key="k").submission == 2
    assert list(state.uploads.values()) == [b"echo"]


def test_download(client: Client, state: State, tmp_path: Path) -> None:
    state.jobs = {5: job(5)}
    state.outputs = {5: {"stdout": b"hi", "sub/one file.txt": b"\x00" * 100_000}}
    report = client.download(5, tmp_path)
    assert (tmp_path / "5" / "stdout").read_bytes() == b"hi"
    assert (tmp_path / "5" / "sub" / "one file.txt").stat().st_size == 100_000
    assert len(report.written) == 2
    (tmp_path / "5" / "stdout").write_text("mine")
    assert client.download(5, tmp_path).written == []
    assert (tmp_path / "5" / "stdout").read_text() == "mine"
    assert len(client.download(5, tmp_path, force=True).written) == 2
    assert (tmp_path / "5" / "stdout").read_bytes() == b"hi"
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "", "a\0b", "."])
def test_an_output_name_that_leads_out_writes_nothing(
    client: Client, state: State, tmp_path: Path, name: str
) -> None:
    state.jobs, state.outputs = {5: job(5)}, {5: {name: b"evil"}}
    with pytest.raises(InvalidInput):
        client.download(5, tmp_path / "results")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_link_in_the_folder_is_not_followed(client: Client, state: State, tmp_path: Path) -> None:
    state.jobs, state.outputs = {5: job(5)}, {5: {"sub/x": b"evil", "y": b"good"}}
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "y").write_text("safe")
    folder = tmp_path / "results" / "5"
    folder.mkdir(parents=True)
    (folder / "sub").symlink_to(outside)
    with pytest.raises(InvalidInput, match="by a link"):
        client.download(5, tmp_path / "results")
    (folder / "sub").unlink()
    (folder / "y").symlink_to(outside / "y")
    client.download(5, tmp_path / "results", force=True)
    assert (outside / "y").read_text() == "safe"
    assert (folder / "y").read_text() == "good"


def test_a_file_in_the_place_of_a_folder(client: Client, state: State, tmp_path: Path) -> None:
    state.jobs, state.outputs = {5: job(5)}, {5: {"y": b"good"}}
    (tmp_path / "5").write_text("a file")
    with pytest.raises((InvalidInput, Conflict)):
        client.download(5, tmp_path)


def test_a_truncated_file_is_not_kept(client: Client, state: State, tmp_path: Path) -> None:
    state.jobs, state.outputs = {5: job(5)}, {5: {"y": b"good"}}
    state.failures = [None, (200, b"go"), (200, b"go")]
    client.download(5, tmp_path)
    assert (tmp_path / "5" / "y").read_text() == "good"
