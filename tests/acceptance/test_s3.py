"""Requests whose files lie in a real S3 service, and what its faults do to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instance import Instance, running
from tests.s3 import S3Server, running_s3

pytestmark = pytest.mark.slow

FILES, LINES = 4, 5
STORAGE = """
[storage.results]
type = "s3"
patience = 5
[storage.results.s3]
endpoint = "{url}"
bucket = "data"
prefix = "out"
credentials_file = "{credentials}"
"""
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
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def instance(s3: S3Server, tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, processors=2, idle=2) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["results"]')
        instance.policy += STORAGE.format(url=s3.url, credentials=s3.credentials_file)
        instance.apply()
        yield instance


def cli(instance: Instance, *words: str) -> str:
    done = instance.cli(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answer(instance: Instance, *words: str) -> Any:
    return json.loads(cli(instance, *words, "--json"))


def make_data(instance: Instance, folder: Path) -> list[str]:
    """The data set `numbers` in folders; returns its lines."""
    lines = []
    for number in range(FILES):
        path = folder / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = [f"line {number}.{place}\n" for place in range(LINES)]
        path.write_text("".join(own))
        lines += own
    cli(instance, "dataset", "add", "numbers", str(folder), "--close", "--checksum", "sha256")
    return lines


def submit(instance: Instance, folder: Path, text: str) -> None:
    (folder / "request.toml").write_text(text)
    cli(instance, "request", "submit", str(folder / "request.toml"))


def test_a_request_reads_writes_merges_and_clears_away_in_s3(
    instance: Instance, s3: S3Server, tmp_path: Path
) -> None:
    lines = make_data(instance, tmp_path / "data")
    text = REQUEST.format(name="copy", input="numbers") + "[merge]\ncleanup = true\n"
    submit(instance, tmp_path, text + "[log_collect]\ncleanup = true\n")
    cli(instance, "request", "wait", "1", "--timeout", "60s")
    [file] = answer(instance, "dataset", "files", "copy-1/process")["files"]
    assert file["path"].startswith(f"{s3.address}/out/copy-1/process/")
    merged = s3.read(file["path"]).decode()
    assert sorted(merged.splitlines(keepends=True)) == sorted(lines)
    names = s3.keys("out/copy-1/")
    assert len(names) == 2, "the merged file and the archive of logs"
    [block] = answer(instance, "dataset", "replicas", "copy-1/process")["blocks"]
    assert [replica["site"] for replica in block["replicas"]] == ["*"]
    # A second request reads its input there.
    submit(instance, tmp_path, REQUEST.format(name="again", input="copy-1/process"))
    cli(instance, "request", "wait", "2", "--timeout", "60s")
    [file] = answer(instance, "dataset", "files", "again-2/process")["files"]
    assert s3.read(file["path"]).decode() == merged
