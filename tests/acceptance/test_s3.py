"""Requests whose files lie in a real S3 service, and what its faults do to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.twin.replay import replay
from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.instance import Instance, answer_of, output_of, running, until
from tests.s3 import SECRET, FaultyLine, S3Server

pytestmark = pytest.mark.slow

FILES, LINES = 4, 5
REQUEST = """
name = "{name}"
team = "home"
input = "{input}"

[program]
executable = "/bin/sh"
arguments = ["-c", 'while read -r path; do cat "$path"; done < "$PILOTAGE_FILE_LIST" > lines.txt']

[splitting]
algorithm = "FileBased"
files_per_job = 2

[output]
files = ["lines.txt"]

[retry]
cooloff = 1
"""


@pytest.fixture
def instance(s3: S3Server, line: FaultyLine, tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["results"]')
        instance.policy += line.table("results", "out")
        instance.apply()
        yield instance


def make_data(instance: Instance, folder: Path) -> list[str]:
    """The data set `numbers` in folders; returns its lines."""
    lines = []
    for number in range(FILES):
        path = folder / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = [f"line {number}.{place}\n" for place in range(LINES)]
        path.write_text("".join(own))
        lines += own
    output_of(instance, "dataset", "add", "numbers", str(folder), "--close", "--checksum", "sha256")
    return lines


def submit(instance: Instance, folder: Path, text: str) -> None:
    (folder / "request.toml").write_text(text)
    output_of(instance, "request", "submit", str(folder / "request.toml"))


def test_a_request_reads_writes_merges_and_clears_away_in_s3(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    lines = make_data(instance, tmp_path / "data")
    s3.put("out/copy-1/process/unmerged/1/99-1-5/left", b"a file of a lost attempt")
    text = REQUEST.format(name="copy", input="numbers") + "[merge]\ncleanup = true\n"
    submit(instance, tmp_path, text + "[log_collect]\ncleanup = true\n")
    output_of(instance, "request", "wait", "1", "--timeout", f"{2 * PATIENCE:g}s")
    [file] = answer_of(instance, "dataset", "files", "copy-1/process")["files"]
    assert file["path"].startswith(f"{line.address}/out/copy-1/process/")
    merged = s3.read(file["path"]).decode()
    assert sorted(merged.splitlines(keepends=True)) == sorted(lines)
    names = s3.keys("out/copy-1/")
    assert len(names) == 2, "the merged file and the archive of logs"
    [block] = answer_of(instance, "dataset", "replicas", "copy-1/process")["blocks"]
    assert [replica["site"] for replica in block["replicas"]] == ["*"]
    # A second request reads its input there.
    submit(instance, tmp_path, REQUEST.format(name="again", input="copy-1/process"))
    output_of(instance, "request", "wait", "2", "--timeout", f"{2 * PATIENCE:g}s")
    [file] = answer_of(instance, "dataset", "files", "again-2/process")["files"]
    assert s3.read(file["path"]).decode() == merged


def finished(instance: Instance, request: int, name: str) -> list[str]:
    """Wait for a request; returns the addresses of its outputs."""
    output_of(instance, "request", "wait", str(request), "--timeout", f"{PATIENCE:g}s")
    return [
        file["path"] for file in answer_of(instance, "dataset", "files", f"{name}-{request}/process")["files"]
    ]


def names_of(paths: list[str]) -> list[str]:
    return sorted(path.partition("/data/")[2] for path in paths)


def test_a_server_that_is_killed_before_the_registration_loses_and_doubles_nothing(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    lines = make_data(instance, tmp_path / "data")
    line.hold = b"HEAD /data/out/"
    submit(instance, tmp_path, REQUEST.format(name="killed", input="numbers"))
    assert line.held.wait(PATIENCE), "the file is stored, and the server compares it"
    instance.kill_server()
    line.go_on.set()
    instance.start()
    paths = finished(instance, 1, "killed")
    assert sorted("".join(s3.read(path).decode() for path in paths).splitlines(keepends=True)) == sorted(
        lines
    )
    assert s3.keys("out/killed-1/") == names_of(paths), "no file is lost, and none is left over"


def test_an_object_that_changes_before_the_registration_is_not_registered(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    lines = make_data(instance, tmp_path / "data")
    line.hold = b"HEAD /data/out/"
    submit(instance, tmp_path, REQUEST.format(name="changed", input="numbers"))
    assert line.held.wait(PATIENCE)
    for key in s3.keys("out/changed-1/"):
        s3.put(key, b"other contents")
    line.go_on.set()
    paths = finished(instance, 1, "changed")
    assert sorted("".join(s3.read(path).decode() for path in paths).splitlines(keepends=True)) == sorted(
        lines
    )
    assert "other contents" not in "".join(s3.read(path).decode() for path in paths)


def test_a_service_that_is_away_is_told_once_and_work_goes_on_when_it_is_back(
    instance: Instance, s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    assert "serves" in output_of(instance, "storage", "test", "results")
    make_data(instance, tmp_path / "data")
    s3.kill()
    for _ in range(2):
        done = instance.cli("storage", "test", "results")
        assert done.returncode == 1
        assert "does not answer" in done.stdout
    [row] = answer_of(instance, "storage", "list")["storage"]
    assert (row["name"], row["type"], row["address"]) == ("results", "s3", f"{line.address}/out")
    assert "does not answer" in row["problem"]
    before = line.connections
    submit(instance, tmp_path, REQUEST.format(name="away", input="numbers"))
    until(lambda: line.connections > before + 2 or None, what="pilots try")
    assert "storage results does not serve" in answer_of(instance, "request", "why", "1")["summary"]
    s3.start()
    assert len(finished(instance, 1, "away")) == 2
    assert "serves" in output_of(instance, "storage", "test", "results")
    log = instance.log()
    assert log.count("storage results: ") == 1, "a change is logged once"
    assert s3.credentials_file.read_text().split("aws_secret_access_key = ")[1].split("\n")[0] not in log


def test_outputs_of_a_refused_attempt_are_listed_and_removed(
    s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    with running(tmp_path, processors=2, idle=2, lease=5) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["results"]')
        instance.policy += line.table("results", "out") + "lifetime = 3600\n"
        instance.apply()
        make_data(instance, tmp_path / "data")
        gate = tmp_path / "gate"
        waits = f"until [ -e {gate} ]; do sleep 0.1; done; while"
        submit(instance, tmp_path, REQUEST.format(name="copy", input="numbers").replace("while", waits, 1))
        client = instance.client()
        running_jobs = Selection(request=1, states=["Running"])
        until(lambda: client.counts(running_jobs).total, what="a running job")
        first = next(iter(client.jobs(running_jobs)))
        assert client.kill([first.id]).done == 1
        gate.touch()
        assert instance.cli("request", "wait", "1", "--timeout", f"{PATIENCE:g}s").returncode == 1, (
            "one job failed"
        )
        registered = [
            row["path"] for row in answer_of(instance, "dataset", "files", "copy-1/process")["files"]
        ]
        assert registered
        element = registered[0].split("/process/")[1].split("/")[0]
        name = f"out/copy-1/process/{element}/{first.id}-{first.epoch}-5/lines.txt"
        left = s3.put(name, b"of a killed attempt")
        s3.put(f"out/copy-1/process/{element}/999999-1-5/lines.txt", b"of another pool")
        left = left.replace(s3.address, line.address)

        def listed() -> list[dict[str, Any]]:
            return answer_of(instance, "storage", "unclaimed", "results")["objects"]  # type: ignore[no-any-return]

        assert listed() == [], "it is younger than addresses of pilots"
        instance.policy = instance.policy.replace("lifetime = 3600", "lifetime = 10")
        instance.apply()
        # The killed program may have stored its own file at its end.
        row = until(
            lambda: next((row for row in listed() if row["url"] == left), None),
            what="an object that is old enough",
        )
        assert (row["url"], row["size"], row["job"], row["epoch"]) == (left, 19, first.id, first.epoch)
        done = instance.cli("storage", "unclaimed", "results", "--remove")
        assert (done.returncode, "nothing done" in done.stderr) == (2, True)
        said = output_of(instance, "storage", "unclaimed", "results", "--remove", "-y")
        assert left in said
        assert left not in {row["url"] for row in listed()}
        assert name not in s3.keys("out/copy-1/")
        assert {*names_of(registered)} <= {*s3.keys("out/copy-1/")}, "files of data sets stay"
        assert any("/999999-1-5/" in key for key in s3.keys("out/copy-1/")), "and files of unknown attempts"
        [entry] = [row for row in client.audit() if row.call.endswith("/unclaimed/remove")]
        assert re.search(r"[12] objects? removed", entry.after)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('bucket = "data"', 'bucket = "nothing"'), "has no bucket nothing"),
        (('prefix = "out"', 'profile = "wrong"'), "forbids the use of bucket data: SignatureDoesNotMatch"),
        (('prefix = "out"', 'profile = "none"'), "has no section"),
    ],
)
def test_a_place_that_cannot_be_used_is_told(
    instance: Instance, change: tuple[str, str], reason: str
) -> None:
    instance.policy = instance.policy.replace(*change)
    instance.apply()
    done = instance.cli("storage", "test", "results")
    assert done.returncode == 1
    assert reason in " ".join(done.stdout.split())


def test_jobs_tell_that_the_server_has_no_key(instance: Instance, tmp_path: Path) -> None:
    instance.policy = instance.policy.replace('prefix = "out"', 'profile = "none"')
    instance.apply()
    make_data(instance, tmp_path / "data")
    submit(instance, tmp_path, REQUEST.format(name="none", input="numbers") + "max_retries = 0\n")
    assert instance.cli("request", "wait", "1", "--timeout", f"{PATIENCE:g}s").returncode != 0
    shown = " ".join(output_of(instance, "request", "show", "1").split())
    assert "the server gives no address: storage results: credentials_file" in shown


def test_a_record_has_no_key_and_no_address_that_can_be_used(
    s3: S3Server, line: FaultyLine, tmp_path: Path
) -> None:
    record, instance = tmp_path / "run.record", Instance(tmp_path, processors=1, idle=2)
    try:
        instance.start("--record", str(record))
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["results"]')
        instance.policy += line.table("results", "out")
        instance.apply()
        make_data(instance, tmp_path / "data")
        submit(instance, tmp_path, REQUEST.format(name="kept", input="numbers"))
        assert len(finished(instance, 1, "kept")) == 2
        instance.stop_server()
    finally:
        instance.close()
    text = record.read_bytes()
    assert b"X-Amz-Signature=-" in text
    assert not re.search(rb"X-Amz-Signature=[0-9a-f]", text)
    assert SECRET.encode() not in text
    result = replay(record)
    assert (result.difference, result.ended) == ("", True)


TOOL = """#!/bin/sh
echo "$@" >> {folder}/calls
file={folder}/$(echo "$2" | sed 's|disk://eos/||; s|/|_|g')
case $1 in
put) cp "$3" "$file" ;;
get) cp "$file" "$3" ;;
rm) rm "$file" ;;
esac
"""
COMMANDS = """
[storage.eos]
type = "command"
sites = ["here"]
[storage.eos.command]
url = "disk://eos/pilotage"
put = "{tool} put {{url}} {{file}}"
get = "{tool} get {{url}} {{file}}"
remove = "{tool} rm {{url}}"
"""


def test_a_request_in_a_place_of_commands(tmp_path: Path) -> None:
    folder, tool = tmp_path / "eos", tmp_path / "tool"
    folder.mkdir()
    tool.write_text(TOOL.format(folder=folder))
    tool.chmod(0o755)
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["eos"]')
        instance.policy += COMMANDS.format(tool=tool)
        instance.apply()
        lines = make_data(instance, tmp_path / "data")
        text = REQUEST.format(name="copy", input="numbers")
        submit(instance, tmp_path, text.replace("[retry]", "[merge]\ncleanup = true\n[retry]"))
        [path] = finished(instance, 1, "copy")
        assert path.startswith("disk://eos/pilotage/copy-1/process/")
        [stored] = [file for file in folder.iterdir() if file.name != "calls"]
        assert sorted(stored.read_text().splitlines(keepends=True)) == sorted(lines)
        verbs = [line.split()[0] for line in (folder / "calls").read_text().splitlines()]
        assert sorted(verbs) == sorted(["put", "get"] * 3 + ["get"] * 2 + ["rm"] * 2)
        [block] = answer_of(instance, "dataset", "replicas", "copy-1/process")["blocks"]
        assert [replica["site"] for replica in block["replicas"]] == ["here"]


def test_a_program_that_a_node_lacks_is_not_the_fault_of_the_job(tmp_path: Path) -> None:
    with running(tmp_path, processors=1, idle=2) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["eos"]')
        instance.policy += COMMANDS.format(tool="no-such-program")
        instance.apply()
        make_data(instance, tmp_path / "data")
        submit(instance, tmp_path, REQUEST.format(name="copy", input="numbers") + "max_retries = 0\n")
        assert instance.cli("request", "wait", "1", "--timeout", f"{PATIENCE:g}s").returncode != 0
        shown = output_of(instance, "request", "show", "1")
        assert "this node has no program no-such-program" in " ".join(shown.split())
