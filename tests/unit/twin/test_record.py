"""Records of a server's work: written and read, and files that are none."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.main.twin_inputs import recorded_inputs
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.ces_file import ces_text, parse_ces
from pilotage.twin.record import RecordHeader, WorkRecord, read_record, write_record
from pilotage.twin.served_policy import prepare_recorded_jobs
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJob, TraceJobs

CES = (
    TwinCe("grid", (TwinNodes(3, 8, 16000), TwinNodes(1, 4)), 3600.0, 5.5, (0.0, 1.5, 20.0), 0.25),
    TwinCe("a.b c", (TwinNodes(1, 2),)),
)
JOBS = TraceJobs(
    [
        TraceJob(1, 0.0, 30.5, 1, 100, 60.0, "ada", "physics", 400.0),
        TraceJob(2, 7.25, 1.0, 4, 0, 0.0, "bob", "chemistry"),
    ]
)
DAY = 86400.0


def header(**more: object) -> RecordHeader:
    fields = {"begin": 10 * DAY, "end": 12 * DAY, "named": True, "policy": "", "jobs": len(JOBS)}
    return RecordHeader(**{**fields, "ces": ces_text(CES), **more})  # type: ignore[arg-type]


def written(folder: Path, **more: object) -> Path:
    file = folder / "work.gz"
    folder.mkdir(exist_ok=True)
    write_record(WorkRecord(header(**more), JOBS, CES), file)
    return file


def changed(file: Path, line: int, text: str) -> Path:
    """The same file with another text in a line."""
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    lines[line] = text
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    return file


def refusal(file: Path) -> str:
    with pytest.raises(InvalidInput) as refused:
        read_record(file)
    return refused.value.message


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = written(tmp_path, left_out={"have not ended yet": 3})
    record = read_record(file)
    assert list(record.jobs) == list(JOBS)
    assert record.ces == CES
    assert record.header == header(left_out={"have not ended yet": 3})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_ces_are_read_as_they_were_written() -> None:
    assert parse_ces(ces_text(CES)) == CES


def test_an_existing_file_stays(tmp_path: Path) -> None:
    before = written(tmp_path).read_bytes()
    with pytest.raises(InvalidInput, match=r"work\.gz exists already"):
        written(tmp_path)
    assert (tmp_path / "work.gz").read_bytes() == before


def test_notes_tell_what_is_missing(tmp_path: Path) -> None:
    left_out = {"ended without a run": 1, "have not ended yet": 0}
    record = read_record(written(tmp_path, left_out=left_out, whole_since=11.5 * DAY, remarks=("a remark",)))
    assert list(record.notes) == [
        "1 job left out: ended without a run",
        "jobs that ended in the first 1.5 days of the period may be deleted; later ones are whole",
        "a remark",
    ]
    assert not list(WorkRecord(header(whole_since=9 * DAY), JOBS, CES).notes)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, json.dumps({"format": "pilotage-record", "version": 2}), "is a record of version 2, and this"),
        (
            0,
            json.dumps({"format": "pilotage-record", "version": 1}),
            "is no record of a server's work: Object",
        ),
        (0, json.dumps({"version": 1}), "is no record of a server's work"),
        (0, "[]", "is no record of a server's work: "),
        (0, "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"), "is no record of a server's work: "),
        (2, '[-1.0,1.0,1,0,0.0,"ada","physics"]', ", line 3 is no job: Expected `float` >= 0"),
        (2, '[1.0,0.0,1,0,0.0,"ada","physics"]', ", line 3 is no job: Expected `float` > 0"),
        (2, '[1.0,1.0,1,0,0.0,"ada"]', ", line 3 is no job: Expected `array` of at least length 7"),
        (2, '[1e999,1.0,1,0,0.0,"ada","physics"]', ", line 3 is no job: "),
        (2, "", ", line 3 is no job: "),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, line: int, text: str, message: str) -> None:
    file = changed(written(tmp_path), line, text + "\n")
    assert refusal(file).startswith(f"{file} {message}" if message[0] != "," else f"{file}{message}")


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert refusal(file) == f"{file}: the compressed data is damaged or cut off"
    text = gzip.decompress(whole)
    file.write_bytes(gzip.compress(text[: text.rindex(b"[")]))
    assert refusal(file) == f"{file} has 1 of its 2 jobs"


def test_files_that_are_no_record_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf"
    assert refusal(file) == f"there is no file {file}"
    file.write_text("; MaxProcs: 8\n")
    assert refusal(file) == f"{file} is no record: it is not compressed by gzip"
    assert refusal(tmp_path) == f"cannot read {tmp_path}: Is a directory"
    file.write_bytes(b"")
    assert refusal(file).startswith(f"{file} is no record of a server's work")


def test_ces_that_are_damaged_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, ces="[ces.grid]\n")
    assert refusal(file) == f"{file}: its CEs cannot be read: CE grid: the key nodes is missing"


def test_an_empty_history_is_refused_because_it_has_no_jobs(tmp_path: Path) -> None:
    """Its server had no pilots either, so it has no CEs. That is not what a person must hear."""
    file = tmp_path / "work.gz"
    write_record(
        WorkRecord(header(jobs=0, ces="", left_out={"have not ended yet": 3}), TraceJobs(), ()), file
    )
    record = read_record(file)
    assert (len(record.jobs), record.ces) == (0, ())
    with pytest.raises(InvalidInput) as refused:
        recorded_inputs("work.gz", record, None)
    assert refused.value.message == "work.gz has no jobs; 3 jobs left out: have not ended yet"
    assert "its CEs cannot be read" in refusal(written(tmp_path / "with jobs", ces=""))


def test_jobs_that_a_policy_does_not_admit_are_counted() -> None:
    """A user or a CE may have left since; the others can be tried all the same."""
    text = policy_of_trace(JOBS, CES, {})
    without_bob = text.replace("[users.bob]", "[users.someone]")
    without_ce = without_bob.replace('[ces."a.b c"]', "[ces.other]")
    found = prepare_recorded_jobs(JOBS, {"old": parse(text), "new": parse(without_ce)}, CES, None)
    assert [job.owner for job in found.jobs] == ["ada"]
    assert found.notes == (
        "CE other of new has no history, so it gets no pilots here",
        "new has no CE a.b c, so nothing runs there",
        "1 of 2 jobs are of owners whom new does not admit",
    )
