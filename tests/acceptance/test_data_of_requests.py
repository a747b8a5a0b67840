"""Requests from a data set to a merged file on a real server: input, storage places, merge and cleanup."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, answer_of, output_of, running

pytestmark = pytest.mark.slow

FILES, LINES = 6, 5
REQUEST = """
name = "copy"
team = "home"
input = "numbers"

[program]
executable = "/bin/sh"
arguments = ["-c", 'while read -r path; do cat "$path"; done < "$PILOTAGE_FILE_LIST" > lines.txt']

[splitting]
algorithm = "FileBased"
files_per_job = 2

[output]
files = ["lines.txt"]

[merge]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Instance]:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "copy-1").write_text("a file where a folder must be")
    (tmp_path / "storage").mkdir(mode=0o750)
    with running(tmp_path, processors=2, idle=2) as instance:
        places = json.dumps([str(tmp_path / "lost"), str(tmp_path / "blocked"), str(tmp_path / "storage")])
        instance.policy = instance.policy.replace("[sites.here]", f"[sites.here]\nstorage = {places}")
        instance.apply()
        yield instance


def make_data(folder: Path) -> list[str]:
    """Two folders of files; returns their lines."""
    lines = []
    for number in range(FILES):
        path = folder / f"run{number % 2}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = [f"line {number}.{place}\n" for place in range(LINES)]
        path.write_text("".join(own))
        lines += own
    return lines


def ended(instance: Instance, tmp_path: Path, text: str) -> None:
    """Submit a request over `numbers` and wait for it."""
    (tmp_path / "request.toml").write_text(text)
    output_of(instance, "request", "submit", str(tmp_path / "request.toml"))
    output_of(instance, "request", "wait", "1", "--timeout", f"{2 * PATIENCE:g}s")


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_every_line_is_in_the_merged_file_once_and_the_pieces_are_removed(
    server: Instance, tmp_path: Path
) -> None:
    lines = make_data(tmp_path / "data")
    add = ("dataset", "add", "numbers", str(tmp_path / "data"), "--events-per-file", str(LINES), "--close")
    output_of(server, *add, "--checksum", "sha256")
    ended(server, tmp_path, REQUEST + "cleanup = true\n")
    [file] = answer_of(server, "dataset", "files", "copy-1/process")["files"]
    merged = Path(file["path"])
    assert sorted(merged.read_text().splitlines(keepends=True)) == sorted(lines)
    assert merged.is_relative_to(tmp_path / "storage"), "the first places cannot store anything"
    assert (file["events"], file["size"]) == (FILES * LINES, merged.stat().st_size)
    assert files_below(tmp_path / "storage") == [merged]
    [block] = answer_of(server, "dataset", "replicas", "copy-1/process/unmerged")["blocks"]
    assert block["replicas"] == []
    assert block["located"] is not None, "the block is known to be nowhere"
    steps = answer_of(server, "request", "show", "1")
    assert "process.cleanup" in json.dumps(steps)
    types = {job["type"] for job in answer_of(server, "status", "--limit", "20")["jobs"] if "type" in job}
    assert types <= {"Processing", "Merge", "Cleanup"}


def test_without_cleanup_the_pieces_stay(server: Instance, tmp_path: Path) -> None:
    make_data(tmp_path / "data")
    output_of(server, "dataset", "add", "numbers", str(tmp_path / "data"), "--close")
    ended(server, tmp_path, REQUEST)
    pieces = answer_of(server, "dataset", "files", "copy-1/process/unmerged")["files"]
    assert len(pieces) == 4
    assert all(Path(file["path"]).is_file() for file in pieces)


def test_an_input_that_has_gone_is_told_by_its_path(server: Instance, tmp_path: Path) -> None:
    make_data(tmp_path / "data")
    output_of(server, "dataset", "add", "numbers", str(tmp_path / "data"), "--close")
    (tmp_path / "data" / "run0" / "0.txt").unlink()
    (tmp_path / "request.toml").write_text(REQUEST + "[retry]\nmax_retries = 0\n")
    output_of(server, "request", "submit", str(tmp_path / "request.toml"))
    done = server.cli("request", "wait", "1", "--timeout", f"{2 * PATIENCE:g}s")
    assert done.returncode != 0
    shown = output_of(server, "request", "show", "1")
    assert "0.txt: No such file or directory" in shown + output_of(server, "status", "--state", "Failed")


LOGGED = '''
name = "logged"
team = "home"
input = "numbers"
log_collect = { cleanup = true }

[program]
executable = "/bin/sh"
arguments = ["-c", """
echo "reads $PILOTAGE_FILES"
if grep -q run1 "$PILOTAGE_FILE_LIST"; then
    echo "no calibration" >&2
    exit 3
fi
cat $PILOTAGE_FILES > lines.txt
"""]

[splitting]
algorithm = "FileBased"
files_per_job = 2

[output]
files = ["lines.txt"]

[merge]

[retry]
max_retries = 0
'''


def test_logs_of_good_and_failed_jobs_are_archived_and_removed(server: Instance, tmp_path: Path) -> None:
    make_data(tmp_path / "data")
    output_of(server, "dataset", "add", "numbers", str(tmp_path / "data"), "--close")
    (tmp_path / "request.toml").write_text(LOGGED)
    output_of(server, "request", "submit", str(tmp_path / "request.toml"))
    done = server.cli("request", "wait", "1", "--timeout", f"{2 * PATIENCE:g}s")
    assert done.returncode == 1, done.stdout + done.stderr
    [archive] = answer_of(server, "dataset", "files", "logged-1/logs")["files"]
    records: list[str] = []
    streams: list[str] = []
    with tarfile.open(archive["path"]) as outer:
        for entry in outer:
            with tarfile.open(fileobj=outer.extractfile(entry), mode="r:gz") as inner:
                for member in inner:
                    file = inner.extractfile(member)
                    assert file is not None
                    text = file.read().decode()
                    (records if member.name.endswith("record.json") else streams).append(text)
    ends = sorted((json.loads(text)["step"], json.loads(text)["exit_code"]) for text in records)
    # Two jobs of each folder, and a merge of the good ones, which starts no process.
    assert ends == [("process", 0), ("process", 0), ("process", 3), ("process", 3), ("process.merge", 0)]
    assert sum("no calibration" in text for text in streams) == 2
    assert sum("reads " in text for text in streams) == 4
    kept = [path for path in files_below(tmp_path / "blocked") if "logs" in path.parts]
    assert kept == [Path(archive["path"])], "the single logs were removed, and the archive stays"
    shown = output_of(server, "request", "show", "1")
    assert "logs of jobs\tlogged-1/logs/unmerged" in shown
    assert "logs.collect (LogCollect, SizeBased): logged-1/logs/unmerged → logged-1/logs" in shown
