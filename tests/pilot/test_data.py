"""Jobs of requests: input files, events and storage places, with the real pilot."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pilot.pilot_server import BEGUN, PilotProcess, PilotServer

pytestmark = pytest.mark.slow

Start = Callable[..., PilotProcess]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    folder = tmp_path / "storage"
    folder.mkdir(mode=0o750)
    return folder


def place(folder: Path, name: str = "first") -> dict[str, str]:
    return {"name": name, "path": str(folder)}


def data_file(path: Path, **fields: Any) -> dict[str, Any]:
    return {"name": path.name, "path": str(path), **fields}


def order(*places: Path, **fields: Any) -> dict[str, Any]:
    named = [place(folder, f"place{number}") for number, folder in enumerate(places)]
    return {"element": 5, "folder": "out/put", "dataset": "out/put", "places": named, **fields}


def shell(server: PilotServer, script: str, data: dict[str, Any], **fields: object) -> int:
    return server.add("sh", "-c", script, data=data, **fields)


def out(finish: dict[str, Any]) -> str:
    return base64.b64decode(finish["stdout"]).decode()


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_program_learns_its_files_and_its_events(
    server: PilotServer, pilot: Start, tmp_path: Path, storage: Path
) -> None:
    first, second = tmp_path / "a file", tmp_path / "b"
    first.write_text("one\n")
    second.write_text("two\n")
    files = [
        data_file(first, size=4, events=10, first_event=3, event_count=7, lumis=[[1, 2, 3]]),
        data_file(second, events=5, event_count=5),
        {"name": "c", "path": "root://far/c"},
    ]
    script = (
        'cat "$PILOTAGE_INPUT"; echo; while IFS= read -r path; do echo "$path"; done < "$PILOTAGE_FILE_LIST";'
        ' echo "$PILOTAGE_FILES" | wc -l; echo $PILOTAGE_FIRST_EVENT $PILOTAGE_EVENTS $PILOTAGE_SEED $PILOTAGE_STEP'
    )
    data = order(storage, files=files, events=12, first_event=40, seed=99, step="analyse", request_name="r")
    finish_of = shell(server, script, data)
    pilot()
    finish = server.finish_of(finish_of)
    document, end = json.JSONDecoder().raw_decode(out(finish))
    assert [file["path"] for file in document["files"]] == [str(first), str(second), "root://far/c"]
    assert [document["files"][0][key] for key in ("first_event", "event_count", "events")] == [3, 7, 10]
    assert document["files"][0]["lumis"] == [[1, 2, 3]]
    assert (document["events"], document["seed"], document["job"]) == (12, 99, finish_of)
    assert out(finish)[end:].split("\n")[1:] == [
        str(first),
        str(second),
        "root://far/c",
        "3",
        "40 12 99 analyse",
        "",
    ]
    assert "places" not in document, "programs do not write to storage themselves"
    assert (finish["exit_code"], finish["failure"], finish["files"]) == (0, "", [])


def test_outputs_are_stored_complete_and_described(server: PilotServer, pilot: Start, storage: Path) -> None:
    script = (
        "mkdir sub; printf hello > sub/a.txt; printf world > b.txt; touch left.out;"
        ' echo \'{"outputs": {"sub/a.txt": {"events": 3, "lumis": [[1, 4, 6]]}}, "message": "2 bad channels"}\''
        ' > "$PILOTAGE_REPORT"'
    )
    job = shell(server, script, order(storage, outputs=["sub/*.txt", "b.txt"], events=8))
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], finish["message"]) == ("", "2 bad channels")
    first, second = finish["files"]
    assert (first["name"], first["pattern"], first["events"], first["lumis"]) == (
        f"5/{job}-1/sub/a.txt",
        "sub/*.txt",
        3,
        [[1, 4, 6]],
    )
    assert first["checksum"] == f"adler32:{zlib.adler32(b'hello'):08x}"
    assert (second["size"], second["events"], second["place"]) == (5, 8, "place0"), (
        "unreported: all of its events"
    )
    path = Path(first["prefix"]) / first["name"]
    assert path.read_text() == "hello"
    assert first["prefix"] == str(storage / "out/put")
    assert written(storage) == [f"out/put/5/{job}-1/b.txt", f"out/put/5/{job}-1/sub/a.txt"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o640, 0o750), "as its place"


def test_the_next_storage_place_takes_a_refused_file(
    server: PilotServer, pilot: Start, storage: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "out").write_text("a file where a folder must be")
    data = order(tmp_path / "lost mount", blocked, storage, outputs=["x"], checksum="sha256")
    job = shell(server, "printf 1 > x", data)
    pilot()
    finish = server.finish_of(job)
    [file] = finish["files"]
    assert (finish["failure"], file["place"]) == ("", "place2")
    assert file["checksum"] == "sha256:" + hashlib.sha256(b"1").hexdigest()
    assert not (tmp_path / "lost mount").exists(), "nothing is written below a lost mount point"


def test_a_job_without_a_place_fails_with_the_reasons(
    server: PilotServer, pilot: Start, tmp_path: Path
) -> None:
    job = shell(server, "printf 1 > x", order(tmp_path / "lost", outputs=["x"]))
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], finish["files"]) == ("output", [])
    assert f"{tmp_path}/lost is not a folder" in finish["message"]


def test_a_missing_or_short_input_fails_before_the_program_starts(
    server: PilotServer, pilot: Start, tmp_path: Path, storage: Path
) -> None:
    short = tmp_path / "short"
    short.write_text("123")
    gone = shell(server, "touch ran", order(storage, files=[data_file(tmp_path / "gone")]))
    cut = shell(server, "touch ran", order(storage, files=[data_file(short, size=4)]))
    nowhere = shell(server, "touch ran", order(storage, files=[{"name": "lost", "path": ""}]))
    pilot()
    for job, words in (
        (gone, "No such file"),
        (cut, "it has 3 bytes; the catalogue has 4"),
        (nowhere, "input file lost: it has no replica"),
    ):
        finish = server.finish_of(job)
        assert finish["failure"] == "input"
        assert words in finish["message"]
        assert finish["exit_code"] is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "the program wrote no file 'x'"),
        ("ln -s /etc/passwd x", "leads out of the folder"),
        ('touch x; echo "{" > "$PILOTAGE_REPORT"', "its report is not valid"),
        ('touch x; ln -s /etc/passwd "$PILOTAGE_REPORT"', "its report is not valid"),
        ('touch x; echo \'{"outputs": {"x": {"events": -1}}}\' > "$PILOTAGE_REPORT"', "a whole number"),
        ('touch x; echo \'{"outputs": {"x": {"events": 9}}}\' > "$PILOTAGE_REPORT"', "the job was given 8"),
    ],
)
def test_outputs_that_are_missing_or_false_are_the_programs_failure(
    server: PilotServer, pilot: Start, storage: Path, script: str, words: str
) -> None:
    job = shell(server, script, order(storage, outputs=["x"], events=8))
    pilot()
    finish = server.finish_of(job)
    assert finish["failure"] == "payload"
    assert words in finish["message"]
    assert finish["files"] == []
    assert written(storage) == []


def test_a_report_that_would_not_fit_in_a_message_fails_the_job(
    server: PilotServer, pilot: Start, storage: Path
) -> None:
    script = """
import json, os
spans = [[1, 2 * n, 2 * n] for n in range(10_000)]
names = [f"{n}.out" for n in range(11)]
for name in names:
    open(name, "w").close()
with open(os.environ["PILOTAGE_REPORT"], "w") as file:
    json.dump({"outputs": {name: {"events": 1, "lumis": spans} for name in names}}, file)
"""
    job = server.add(sys.executable, "-c", script, data=order(storage, outputs=["*.out"]))
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], finish["files"]) == ("payload", [])
    assert "more than 30,000 ranges" in finish["message"]
    assert written(storage) == []


@pytest.mark.parametrize(
    ("script", "size"), [("truncate -s 40G x", 40 * 2**30), ("head -c 600 /dev/zero > x; cp x y", 1200)]
)
def test_outputs_that_are_too_large_are_not_copied_and_the_job_tells_the_limit(
    server: PilotServer, pilot: Start, storage: Path, script: str, size: int
) -> None:
    """Also a sparse file, which takes no room in the folder of the job."""
    job = shell(server, script, order(storage, outputs=["*"], max_output=1000))
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], finish["files"]) == ("payload", [])
    assert f"its outputs have {size:,} bytes: at most 1,000 are stored" in finish["message"]
    assert "max_output_size" in finish["message"]
    assert written(storage) == []


def test_outputs_up_to_the_limit_are_stored(server: PilotServer, pilot: Start, storage: Path) -> None:
    job = shell(server, "printf 12345 > x", order(storage, outputs=["x"], max_output=5))
    pilot()
    assert [file["size"] for file in server.finish_of(job)["files"]] == [5]


def test_a_failed_program_stores_nothing(server: PilotServer, pilot: Start, storage: Path) -> None:
    job = shell(server, "touch x; exit 3", order(storage, outputs=["x"]))
    pilot()
    finish = server.finish_of(job)
    assert (finish["exit_code"], finish["failure"], finish["files"]) == (3, "", [])
    assert written(storage) == []


def test_no_attempt_writes_where_another_has_written(
    server: PilotServer, pilot: Start, storage: Path
) -> None:
    earlier = storage / "out/put/5/1-1"
    earlier.mkdir(parents=True)
    (earlier / "x").write_text("of an earlier life of the database")
    job = shell(server, "printf new > x", order(storage, outputs=["x"]))
    assert job == 1
    pilot()
    [file] = server.finish_of(job)["files"]
    assert file["name"] == "5/1-1-2/x"
    assert (earlier / "x").read_text() == "of an earlier life of the database"


def test_merged_by_the_pilot_itself(server: PilotServer, pilot: Start, storage: Path) -> None:
    unmerged = storage / "un"
    unmerged.mkdir()
    files = []
    for number in range(3):
        path = unmerged / f"{number}.txt"
        path.write_text(f"line {number}\n")
        checksum = f"adler32:{zlib.adler32(path.read_bytes()):08x}"
        files.append(data_file(path, size=7, checksum=checksum, events=1, lumis=[[1, number, number]]))
    merge = server.add(
        "-", data=order(storage, files=files, outputs=["all.txt"], events=3, action="concatenate")
    )
    false = [*files[:2], {**files[2], "checksum": "adler32:00000001"}]
    broken = server.add("-", data=order(storage, files=false, outputs=["all.txt"], action="concatenate"))
    archive = server.add("-", data=order(storage, files=files, outputs=["*.tar"], action="archive"))
    secret = server.add("-", data=order(storage, files=[data_file(Path("/etc/hostname"))], action="archive"))
    pilot()
    finish = server.finish_of(merge)
    [file] = finish["files"]
    assert (finish["exit_code"], finish["failure"], file["events"]) == (0, "", 3)
    assert file["lumis"] == [[1, 0, 2]]
    assert (storage / "out/put" / file["name"]).read_text() == "line 0\nline 1\nline 2\n"
    finish = server.finish_of(broken)
    assert (finish["failure"], finish["files"]) == ("input", [])
    assert "its checksum is" in finish["message"]
    [file] = server.finish_of(archive)["files"]
    with tarfile.open(storage / "out/put" / file["name"]) as archived:
        assert [(entry.name, entry.size) for entry in archived] == [(f"{n}.txt", 7) for n in range(3)]
        member = archived.extractfile("2.txt")
        assert member is not None
        assert member.read() == b"line 2\n"
    finish = server.finish_of(secret)
    assert finish["failure"] == "input"
    assert "only from the storage places" in finish["message"]
    assert [name for name in written(storage) if f"/{broken}-" in name] == []


def logs_of(storage: Path, finish: dict[str, Any]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The streams and the record in the log archive of an attempt."""
    logs = finish["logs"]
    path = storage / "log/s" / logs["name"]
    assert (logs["prefix"], logs["size"]) == (str(storage / "log/s"), path.stat().st_size)
    assert logs["checksum"] == f"adler32:{zlib.adler32(path.read_bytes()):08x}"
    with tarfile.open(path, "r:gz") as archive:
        members = {entry.name: archive.extractfile(entry) for entry in archive}
        texts = {name: file.read() for name, file in members.items() if file is not None}
    folder = f"{finish['job']}-{finish['epoch']}"
    return {name: text for name, text in texts.items() if "record" not in name}, json.loads(
        texts[f"{folder}/record.json"]
    )


def logged(*places: Path, **fields: Any) -> dict[str, Any]:
    named = [place(folder, f"place{number}") for number, folder in enumerate(places)]
    facts = {"log_name": "logs.tar.gz", "log_folder": "log/s", "log_places": named, "step": "analyse"}
    return order(*places, **facts, **fields)


def test_logs_of_good_and_failed_jobs_are_stored(
    server: PilotServer, pilot: Start, storage: Path, tmp_path: Path
) -> None:
    server.enrol.update(ahead=0)  # jobs ahead of the slow one would be given back
    good = shell(server, "echo out; echo err >&2; printf 1 > x", logged(storage, outputs=["x"], events=3))
    bad = shell(server, "echo halfway; echo broken >&2; exit 3", logged(storage, outputs=["x"]))
    slow = shell(server, "echo begun; sleep 600", logged(storage), wall_time=BEGUN)
    absent = shell(server, "echo never", logged(storage, files=[data_file(tmp_path / "gone", size=4)]))
    merge = server.add("-", data=logged(storage, files=[data_file(tmp_path / "gone")], action="archive"))
    plain = shell(server, "echo out", order(storage))
    pilot()
    finish = server.finish_of(good)
    streams, record = logs_of(storage, finish)
    assert streams == {f"{good}-1/stdout": b"out\n", f"{good}-1/stderr": b"err\n"}
    assert (record["exit_code"], record["failure"], record["step"], record["events"]) == (0, "", "analyse", 3)
    assert record["output"] == finish["files"]
    assert record["arguments"][0] == "-c"
    assert "environment" not in record, "an environment may hold secrets"
    streams, record = logs_of(storage, server.finish_of(bad))
    assert streams == {f"{bad}-1/stdout": b"halfway\n", f"{bad}-1/stderr": b"broken\n"}
    assert (record["exit_code"], record["output"]) == (3, [])
    streams, record = logs_of(storage, server.finish_of(slow))
    assert streams[f"{slow}-1/stdout"] == b"begun\n"
    assert record["failure"] == "limit-wall"
    for job in (absent, merge):
        streams, record = logs_of(storage, server.finish_of(job))
        assert streams == {}, "no process was started"
        assert (record["failure"], record["input"][0]["name"]) == ("input", "gone")
        assert "No such file" in record["message"]
    assert server.finish_of(plain)["logs"] is None


def test_logs_that_no_place_takes_change_no_result(server: PilotServer, pilot: Start, tmp_path: Path) -> None:
    good = shell(server, "true", logged(tmp_path / "lost"))
    bad = shell(server, "exit 4", logged(tmp_path / "lost"))
    pilot()
    finish = server.finish_of(good)
    assert (finish["exit_code"], finish["failure"], finish["logs"]) == (0, "", None)
    assert "its logs were not stored: no storage place took logs.tar.gz" in finish["message"]
    finish = server.finish_of(bad)
    assert (finish["exit_code"], finish["failure"], finish["logs"]) == (4, "", None)


def test_cleanup_removes_inputs_and_leftovers_only(
    server: PilotServer, pilot: Start, storage: Path, tmp_path: Path
) -> None:
    base = storage / "out/put"
    for name in ("1/1-1/x", "1/1-2/left", "2/2-1/kept", "2/2-1/deep/left", "3/3-1/other"):
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    outside = tmp_path / "outside"
    outside.write_text("stays")
    (base / "2/link").symlink_to(tmp_path)
    files = [data_file(base / "1/1-1/x"), data_file(base / "1/1-1/already gone")]
    data = order(storage, files=files, action="remove", sweep=["1", "2"], keep=["2/2-1/kept"])
    job = server.add("-", data=data)
    refused = server.add(
        "-", data=order(storage, files=[data_file(outside)], action="remove", sweep=["../.."])
    )
    pilot()
    finish = server.finish_of(job)
    assert (finish["exit_code"], finish["failure"], finish["files"]) == (0, "", [])
    assert written(base) == ["2/2-1/kept", "3/3-1/other"]
    assert not (base / "1").exists()
    assert server.finish_of(refused)["failure"] == "node"
    assert outside.exists()


def test_a_killed_merge_stops(server: PilotServer, pilot: Start, storage: Path) -> None:
    fifo = storage / "endless"
    fifo.touch()
    os.truncate(fifo, 1 << 40)  # sparse: a terabyte would take hours to copy
    job = server.add("-", data=order(storage, files=[data_file(fifo)], outputs=["x"], action="concatenate"))
    process = pilot()
    server.wait_for(lambda: server.state[job] == "held")
    with server.changed:
        server.stop.add(job)
    assert process.wait() == 0
    assert written(storage) == ["endless"]


def test_an_isolated_program_reads_its_files_and_reaches_no_place(
    server: PilotServer, pilot: Start, storage: Path, tmp_path: Path
) -> None:
    server.enrol.update(isolation="require")
    (storage / "in").write_text("data\n")
    hidden = tmp_path / "secret"
    hidden.write_text("of the pilot's account")
    script = f'cat "$PILOTAGE_FILES" > x; ls {storage} || echo hidden; cp "$PILOTAGE_INPUT" y'
    job = shell(server, script, order(storage, files=[data_file(storage / "in", size=5)], outputs=["x"]))
    other = shell(server, script, order(storage, files=[data_file(hidden)], outputs=["x"]))
    pilot()
    finish = server.finish_of(job)
    assert (finish["failure"], out(finish)) == ("", "hidden\n")
    [file] = finish["files"]
    assert (Path(file["prefix"]) / file["name"]).read_text() == "data\n"
    finish = server.finish_of(other)
    assert finish["failure"] == "node"
    assert "isolated payloads do not see it" in finish["message"]
