"""The file of a record: what a bad one says, and what a cut one still has."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.recording.lines import (
    FORMAT,
    Ended,
    Inputs,
    Line,
    ReceivedMessage,
    ReceivedSignal,
    RecordBegin,
    ServerAt,
    line_of,
    read_record,
)
from pilotage.server.recording.recorder import RecordFile

SERVER = ServerAt("http://here", "here", "ada", "/home/storage", {}, "", "", 64, "sqlite")
BEGIN_LINE = RecordBegin(FORMAT, "0.1.0", 1000.0, "seed", SERVER, "")
MESSAGE = ReceivedMessage(
    1, "POST", "/v1/jobs", b"/v1/jobs", b"", [(b"host", b"here")], ("::1", 5), b"\xff\x00{}"
)
LINES = (
    Inputs(1001.0, 0, [MESSAGE]),
    Inputs(1002.5, 7, [ReceivedSignal(15)]),
    Ended(1003.0, 9, {"jobs": "2 abc"}),
)


def text_of(*lines: Line) -> bytes:
    return b"".join(line_of(line) for line in lines)


def written(path: Path, text: bytes | None = None) -> Path:
    path.write_bytes(text_of(BEGIN_LINE, *LINES) if text is None else text)
    return path


def refused(path: Path) -> str:
    def read() -> None:
        _, lines = read_record(path)
        list(lines)

    with pytest.raises(InvalidInput) as error:
        read()
    return str(error.value)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    header, lines = read_record(written(tmp_path / "record"))
    assert (header, *lines) == (BEGIN_LINE, *LINES)


def test_a_last_line_that_was_cut_is_dropped(tmp_path: Path) -> None:
    whole = text_of(BEGIN_LINE, *LINES)
    begin_of_last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(begin_of_last, len(whole)):
        _, lines = read_record(written(tmp_path / "record", whole[:end]))
        assert tuple(lines) == LINES[:-1]


def test_a_changed_byte_is_found_with_its_line(tmp_path: Path) -> None:
    whole = text_of(BEGIN_LINE, *LINES)
    second = whole.index(b"\n") + 1
    for position in range(second, whole.index(b"\n", second)):
        changed = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        assert "is damaged: line 2" in refused(written(tmp_path / "record", changed))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is no record of a server (`pilotage up --record FILE` makes one)"),
        (b"hello\nworld\n", "is no record of a server"),
        (b"\xff\xfe\x00\n", "is no record of a server"),
        (b"00000000 {}\n", "is no record of a server"),
        (line_of(LINES[0]), "is no record of a server"),
        (line_of(BEGIN_LINE) * 2, "is damaged: it has a second beginning"),
        (
            line_of(msgspec.structs.replace(BEGIN_LINE, format=99, version="7.0")),
            "is a record of format 99, of Pilotage 7.0; this version reads format 1 (make it again with this version",
        ),
        (b"00000000 " + line_of(BEGIN_LINE)[9:], "is damaged: line 1 is not as it was written"),
    ],
)
def test_a_bad_record_says_what_is_wrong(tmp_path: Path, text: bytes, words: str) -> None:
    assert words in refused(written(tmp_path / "record", text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing").endswith("nothing cannot be read: No such file or directory")


def test_a_record_goes_to_a_new_file_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "record"
    RecordFile(path, 1000).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Conflict, match="exists already"):
        RecordFile(path, 1000)
    with pytest.raises(InvalidInput, match="cannot be written: No such file or directory"):
        RecordFile(tmp_path / "no" / "record", 1000)


def test_the_recording_ends_at_its_limit_with_a_line_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(line_of(BEGIN_LINE)) + len(line_of(LINES[0]))
    file = RecordFile(tmp_path / "record", size)
    for line in (BEGIN_LINE, *LINES):
        file.write(line)
    assert not file.open
    file.close()
    _, lines = read_record(tmp_path / "record")
    first, last = lines
    assert (first, last) == (LINES[0], Ended(1002.5, 0, {}, "it had reached its limit"))
    assert [record.message for record in caplog.records] == [
        f"the recording has ended: {tmp_path / 'record'} has reached its limit; the server goes on"
    ]
