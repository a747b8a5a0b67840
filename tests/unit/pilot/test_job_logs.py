"""The log archive of one attempt: a tar file that is packed while it is read."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.pilot import job_logs
from pilotage.pilot.job_logs import archive_pieces


def members(pieces: list[bytes]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


@pytest.fixture
def stream(tmp_path: Path) -> Callable[[bytes], int]:
    def opened(content: bytes) -> int:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(content)
        return os.open(path, os.O_RDWR)

    return opened


def test_streams_and_record_are_members_of_one_folder(stream: Callable[[bytes], int]) -> None:
    streams = [("stdout", stream(b"out" * 1000)), ("stderr", stream(b""))]
    found = members(list(archive_pieces("7-2", {"job": 7}, streams, 1e9)))
    assert json.loads(found.pop("7-2/record.json")) == {"job": 7}
    assert found == {"7-2/stdout": b"out" * 1000, "7-2/stderr": b""}


def test_a_place_that_fails_does_not_use_up_the_streams(stream: Callable[[bytes], int]) -> None:
    streams = [("stdout", stream(b"again"))]
    for _ in range(2):
        assert members(list(archive_pieces("1-1", {}, streams, 1e9)))["1-1/stdout"] == b"again"


def test_the_middle_of_a_long_stream_is_left_out(
    stream: Callable[[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "MAX_STREAM", 10)
    text = members(list(archive_pieces("1-1", {}, [("stdout", stream(b"abcdefghijklmn"))], 1e9)))[
        "1-1/stdout"
    ]
    assert text == b"abcde\n[the pilot left out 4 of 14 bytes here]\njklmn"


def test_a_stream_that_shrinks_meanwhile_leaves_a_valid_archive(stream: Callable[[bytes], int]) -> None:
    number = stream(b"x" * 5000)
    pieces = archive_pieces("1-1", {}, [("stdout", number), ("stderr", stream(b"whole"))], 1e9)
    first = [next(pieces) for _ in range(4)]
    os.ftruncate(number, 0)
    found = members([*first, *pieces])
    assert len(found["1-1/stdout"]) == 5000
    assert found["1-1/stderr"] == b"whole"
