"""Records of files of sandboxes that lie in S3 services."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.outside.sandbox.object_records import ObjectRecord

URL = "s3://host/data/sandboxes/i/outputs/7"


@pytest.fixture
def sandbox(tmp_path: Path) -> DirectorySandbox:
    return DirectorySandbox(tmp_path)


def send(sandbox: DirectorySandbox, epoch: int, name: str, size: int = 5, etag: str = "e") -> None:
    path = sandbox.output_record(7, epoch, name)
    sandbox.objects.begin(path, f"{URL}/{epoch}/{name}")
    sandbox.objects.complete(path, size, etag)


def test_an_output_is_there_once_its_object_is_complete(sandbox: DirectorySandbox) -> None:
    path = sandbox.output_record(7, 1, "deep/a b")
    sandbox.objects.begin(path, f"{URL}/1/deep/a b")
    assert sandbox.outputs(7, 1) == []
    with pytest.raises(NotFound):
        sandbox.open_output(7, 1, "deep/a b")
    sandbox.objects.complete(path, 5, "e")
    assert sandbox.outputs(7, 1) == [("deep/a b", 5)]
    assert sandbox.open_output(7, 1, "deep/a b") == ObjectRecord(f"{URL}/1/deep/a b", 5, "e")
    assert sandbox.outputs(7, 2) == []


def test_a_complete_record_stays(sandbox: DirectorySandbox) -> None:
    send(sandbox, 1, "a")
    path = sandbox.output_record(7, 1, "a")
    sandbox.objects.begin(path, "s3://host/other")
    sandbox.objects.complete(path, 5, "e")
    with pytest.raises(Conflict, match="other bytes"):
        sandbox.objects.complete(path, 5, "another")
    assert sandbox.open_output(7, 1, "a") == ObjectRecord(f"{URL}/1/a", 5, "e")


def test_an_object_without_an_address_cannot_be_complete(sandbox: DirectorySandbox) -> None:
    with pytest.raises(NotFound, match="no address was given"):
        sandbox.objects.complete(sandbox.output_record(7, 1, "a"), 5, "e")


def test_a_name_below_a_file_is_refused(sandbox: DirectorySandbox) -> None:
    send(sandbox, 1, "a")
    with pytest.raises(InvalidInput, match="cannot be stored"):
        sandbox.objects.begin(sandbox.output_record(7, 1, "a/b"), URL)


def test_a_file_of_the_folder_comes_before_the_object(sandbox: DirectorySandbox) -> None:
    send(sandbox, 1, "a")
    path = sandbox.output_path(7, 1, "a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of the folder")
    assert sandbox.open_output(7, 1, "a") == path
    assert sandbox.outputs(7, 1) == [("a", 13)]


def test_records_are_removed_by_try_and_by_job(sandbox: DirectorySandbox) -> None:
    for epoch in (1, 2, 10):
        send(sandbox, epoch, "a")
    sandbox.objects.begin(sandbox.output_record(7, 2, "begun"), f"{URL}/2/begun")
    urls = sorted(record.url for record in sandbox.objects_of(7, 2))
    assert urls == [f"{URL}/1/a", f"{URL}/2/a", f"{URL}/2/begun"]
    sandbox.delete_tries(7, 2)
    assert [record.url for record in sandbox.objects_of(7)] == [f"{URL}/10/a"]
    sandbox.delete_outputs(7)
    assert sandbox.objects_of(7) == []
