"""How a pilot knows a folder again, and where the output of a job in place goes."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pilotage.client.in_place import folder_mark
from pilotage.pilot.assignments import Assignment, Assignments, Stage
from pilotage.pilot.cannot_run import CannotRun
from pilotage.pilot.in_place import OtherFolder, check_folder
from pilotage.pilot.standard_streams import StandardStreams
from pilotage.wire.pilot import INLINE_OUTPUT_BYTES, OfferedJob, Payload


def test_the_same_folder_is_known_again_when_its_files_change(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    mark = folder_mark(folder)
    (folder / "file").touch()
    check_folder(str(folder), mark)
    check_folder(str(folder), "")


def test_a_folder_with_other_numbers_is_another_one(tmp_path: Path) -> None:
    with pytest.raises(OtherFolder, match="does not share"):
        check_folder(str(tmp_path), "ino:1/2")
    with pytest.raises(OtherFolder, match="has no folder"):
        check_folder(str(tmp_path / "absent"), "ino:1/2")
    with pytest.raises(OtherFolder):
        check_folder(str(tmp_path / "absent"), "")


def test_a_removed_folder_is_the_fault_of_the_job_and_a_new_one_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    mark = folder_mark(folder)
    folder.rename(tmp_path / "moved")
    with pytest.raises(CannotRun, match="does not exist any more") as caught:
        check_folder(str(folder), mark)
    assert (caught.value.failure, caught.value.exit_code) == ("", 126)
    folder.mkdir()
    check_folder(str(folder), mark)


def open_streams(tmp_path: Path, **fields: Any) -> StandardStreams:
    own = tmp_path / "own"
    own.mkdir(exist_ok=True)
    streams = StandardStreams(Payload("a", folder=str(tmp_path), **fields))
    streams.open(str(own))
    return streams


def test_one_file_for_both_and_the_host_in_its_name(tmp_path: Path) -> None:
    streams = open_streams(tmp_path, stdout_file="%N-%%.out", umask="0027")
    host = socket.gethostname().partition(".")[0]
    path = tmp_path / f"{host}-%.out"
    os.write(streams.files[0], b"hello")
    assert len(streams.files) == 1
    assert streams.removable == frozenset()
    assert base64.b64decode(streams.inlined(0) or "") == b"hello"
    assert path.stat().st_mode & 0o777 == 0o640
    streams.close()
    assert path.read_bytes() == b"hello"


@pytest.mark.parametrize(("mode", "kept"), [("append", b"before"), ("truncate", b"")])
def test_a_file_that_exists_is_appended_to_or_emptied(tmp_path: Path, mode: str, kept: bytes) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    streams = open_streams(tmp_path, stdout_file="out", open_mode=mode)
    os.write(streams.files[0], b"mine")
    assert path.read_bytes() == kept + b"mine"
    assert streams.read(0, 100, 0) == b"mine"
    assert streams.size(0) == 4
    streams.close()


def test_of_a_long_file_the_end_is_sent(tmp_path: Path) -> None:
    streams = open_streams(tmp_path, stdout_file="out", stderr_file="err")
    os.write(streams.files[0], b"x" * 3 * INLINE_OUTPUT_BYTES + b"the end")
    sent = base64.b64decode(streams.inlined(0) or "")
    assert sent.endswith(b"the end")
    assert b"left out" in sent
    assert len(sent) <= INLINE_OUTPUT_BYTES
    assert streams.inlined(1) == ""
    with streams.copy(0, str(tmp_path)) as file:
        file.seek(0)
        assert file.read().endswith(b"the end")
    streams.close()


def test_output_without_a_file_stays_in_the_folder_of_the_pilot(tmp_path: Path) -> None:
    streams = open_streams(tmp_path, stderr_file="err")
    assert streams.removable == {"stdout"}
    assert list(streams.own_files) == streams.files[:1]
    assert (tmp_path / "own" / "stdout").exists()
    assert (tmp_path / "err").exists()
    streams.close()


@pytest.mark.parametrize("name", ["absent/out", "own"])
def test_a_file_that_cannot_be_written_fails_the_job_alone(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotRun) as caught:
        open_streams(tmp_path, stdout_file=name)
    assert (caught.value.failure, caught.value.exit_code) == ("", 126)
    assert str(tmp_path / name) in str(caught.value)


def test_a_pilot_gives_back_all_jobs_of_a_folder_that_differs() -> None:
    assignments = Assignments()
    for job, folder, stages in (
        (1, "/a", (Stage.CONFIRMING, Stage.READY, Stage.RUNNING)),
        (2, "/a", ()),
        (3, "", ()),
    ):
        assignment = Assignment(OfferedJob(job, 1, Payload("x", folder=folder)), 0.0)
        assignments.add(assignment)
        for stage in stages:
            assignments.move(assignment, stage, 0.0)
    assignments.give_up_folder((1, 1), "/a", "another folder", 1.0)
    assert [(release.job, release.reason) for release in assignments.releases()] == [
        (1, "another folder"),
        (2, "another folder"),
    ]
    assert assignments.count(Stage.OFFERED) == 1
    assert assignments.other_folders == ("/a",)
