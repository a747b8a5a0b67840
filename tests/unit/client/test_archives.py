"""Outputs of many jobs by one stream: complete or told, and never outside of their folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.client import Client
from pilotage.core.errors import PilotageError
from tests.unit.client.fake_server import State, job


def prepared(state: State, jobs: int) -> None:
    state.jobs = {number: job(number) for number in range(1, jobs + 1)}
    state.outputs = {number: {"a": b"%d" % number, "d/b": b"x" * 70_000} for number in state.jobs}


def test_many_jobs_by_one_request(client: Client, state: State, tmp_path: Path) -> None:
    prepared(state, 50)
    reports = list(client.download_many(range(1, 51), tmp_path))
    assert [one.job for one in reports] == list(range(1, 51))
    assert (tmp_path / "7" / "a").read_bytes() == b"7"
    assert (tmp_path / "50" / "d" / "b").stat().st_size == 70_000
    assert state.paths() == ["/v1/outputs"]
    assert not list(tmp_path.rglob(".*"))


def test_present_files_are_not_downloaded_again(client: Client, state: State, tmp_path: Path) -> None:
    prepared(state, 3)
    list(client.download_many([1, 2, 3], tmp_path))
    (tmp_path / "2" / "a").write_text("mine")
    (tmp_path / "3" / "a").unlink()
    (tmp_path / "4").mkdir()
    state.jobs[4], state.outputs[4] = job(4), {"a": b"4"}
    state.requests.clear()
    reports = {one.job: one for one in client.download_many([1, 2, 3, 4], tmp_path)}
    assert (tmp_path / "2" / "a").read_text() == "mine"
    assert len(reports[1].kept) == 2
    assert reports[3].written == [tmp_path / "3" / "a"]
    assert reports[4].written == [tmp_path / "4" / "a"]
    assert state.paths("GET") == ["/v1/jobs/3/outputs/a"]
    list(client.download_many([2], tmp_path, force=True))
    assert (tmp_path / "2" / "a").read_text() == "2"


def test_a_broken_stream_goes_on_after_the_last_complete_job(
    client: Client, state: State, tmp_path: Path
) -> None:
    prepared(state, 20)
    cuts = [100_000, 800_000, 0]
    state.archive = lambda data: data[: cuts.pop(0)] if cuts else data
    reports = list(client.download_many(range(1, 21), tmp_path))
    assert [one.job for one in reports] == list(range(1, 21))
    assert state.paths() == ["/v1/outputs"] * 4
    assert not list(tmp_path.rglob(".*"))


def test_a_stream_that_always_breaks_is_told(client: Client, state: State, tmp_path: Path) -> None:
    prepared(state, 3)
    state.archive = lambda data: data[:1000]
    with pytest.raises(PilotageError, match="broke"):
        list(client.download_many([1, 2, 3], tmp_path))
    assert not list(tmp_path.rglob(".*"))


def test_jobs_that_have_gone_and_files_that_are_lost(client: Client, state: State, tmp_path: Path) -> None:
    prepared(state, 2)
    state.lost = {2: ["a", "never sent"]}
    reports = {one.job: one for one in client.download_many([1, 2, 9], tmp_path)}
    assert reports[1].failed == {}
    assert set(reports[2].failed) == {"a", "never sent"}
    assert not (tmp_path / "2" / "a").exists()
    assert (tmp_path / "2" / "d" / "b").exists()
    assert "no longer exists" in reports[9].failed[""]


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "..", "/etc/x", "//x", "a/../../../../../../tmp/x", "."]
)
def test_names_that_lead_out_are_not_written(client: Client, state: State, tmp_path: Path, name: str) -> None:
    state.jobs, state.outputs = {1: job(1)}, {1: {name: b"evil", "good": b"1"}}
    inside = tmp_path / "deep" / "down"
    try:
        reports = list(client.download_many([1], inside))
    except PilotageError:
        reports = []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in (["good"], [])
    assert all(one.failed for one in reports)


def _entry(kind: bytes, name: str, link: str = "") -> Callable[[bytes], bytes]:
    def changed(_: bytes) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            archive.addfile(entry)
        return buffer.getvalue()

    return changed


@pytest.mark.parametrize(
    ("kind", "name", "link"),
    [
        (tarfile.SYMTYPE, "1/a", "/etc/passwd"), (tarfile.LNKTYPE, "1/a", "2/b"), (tarfile.FIFOTYPE, "1/a", ""),
        (tarfile.CHRTYPE, "1/a", ""), (tarfile.REGTYPE, "2/a", ""), (tarfile.REGTYPE, "x", ""),
        (tarfile.DIRTYPE, "1/d", ""), (tarfile.REGTYPE, "\u00b9/a", ""), (tarfile.DIRTYPE, "1", ""),
    ],
)  # fmt: skip
def test_entries_that_a_server_never_sends(
    client: Client, state: State, tmp_path: Path, kind: bytes, name: str, link: str
) -> None:
    state.jobs = {1: job(1)}
    state.archive = _entry(kind, name, link)
    with pytest.raises(PilotageError):
        list(client.download_many([1], tmp_path))
    assert list(tmp_path.rglob("*")) == []


def test_a_link_in_the_way_is_not_followed(client: Client, state: State, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out" / "1").mkdir(parents=True)
    (tmp_path / "out" / "1" / "d").symlink_to(outside)
    (tmp_path / "out" / "1" / "a").symlink_to(outside / "a")
    prepared(state, 1)
    [report] = client.download_many([1], tmp_path / "out", force=True)
    assert "d/b" in report.failed
    assert not any(outside.iterdir())
    assert not (tmp_path / "out" / "1" / "a").is_symlink()


def test_names_that_are_not_utf_8_and_long_ones(client: Client, state: State, tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9\xff"), "new\nline", "x" * 250, "/".join(["y" * 100] * 9), "\u00e9\u4e2d"]
    state.jobs, state.outputs = {1: job(1)}, {1: {name: b"1" for name in names}}
    [report] = client.download_many([1], tmp_path)
    assert report.failed == {}
    assert {path.relative_to(tmp_path / "1") for path in report.written} == {Path(name) for name in names}
    assert b"caf\xe9\xff" in os.listdir(os.fsencode(tmp_path / "1"))


def test_a_full_folder_ends_one_job_not_the_others(client: Client, state: State, tmp_path: Path) -> None:
    prepared(state, 2)
    (tmp_path / "1").write_text("a file where a folder must be")
    reports = {one.job: one for one in client.download_many([1, 2], tmp_path)}
    assert reports[1].failed
    assert len(reports[2].written) == 2
