"""Objects of sandboxes: who may write them, and their removal while the service is away."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pilotage.core.errors import Forbidden, InvalidInput, NotFound, Unreachable
from pilotage.core.policy import Policy, parse
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.outside.storage.operations import ObjectPiece
from pilotage.server.context import Context
from pilotage.server.sandbox_objects import (
    PIECE,
    delete_outputs,
    delete_outputs_or_leave,
    delete_tries,
    pieces_of,
)
from pilotage.services.jobs.sandbox_objects import sandbox_object

TEXT = """
[groups.users]
[users.ada]
groups = ["users"]
[sandboxes]
storage = "results"
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://s3.example.org"
bucket = "data"
"""
POLICY = parse(TEXT)
BASE = "s3://s3.example.org/data/sandboxes"


class Service:
    """The S3 service, as the server has it."""

    def __init__(self, contents: bytes = b"") -> None:
        self.is_away = False
        self.removed: list[str] = []
        self.contents = contents

    def remove(self, policy: Policy, name: str, urls: Sequence[str], now: float) -> None:
        assert name == "results"
        if self.is_away:
            raise Unreachable("it does not answer")
        self.removed += urls

    def read(self, policy: Policy, name: str, piece: ObjectPiece, now: float) -> bytes:
        assert piece.etag == "e"
        return self.contents[piece.offset : piece.offset + piece.most]


def context_of(folder: Path, service: Service, policy: Policy = POLICY) -> Context:
    sandbox = DirectorySandbox(folder)
    for epoch in (1, 2):
        path = sandbox.output_record(7, epoch, "a")
        sandbox.objects.begin(path, f"{BASE}/i/outputs/7/{epoch}/a")
        sandbox.objects.complete(path, len(service.contents), "e")
    return cast(
        Context,
        SimpleNamespace(
            disk=SimpleNamespace(sandbox=sandbox),
            pool=SimpleNamespace(policy=policy),
            work=SimpleNamespace(storage=service),
            clock=lambda: 0.0,
        ),
    )


def test_the_policy_names_a_bucket() -> None:
    with pytest.raises(InvalidInput, match="there is no storage elsewhere of type s3"):
        parse(TEXT.replace('storage = "results"', 'storage = "elsewhere"'))


def test_an_attempt_writes_its_own_outputs_only() -> None:
    own = sandbox_object(POLICY, "i", f"{BASE}/i/outputs/7/1/deep/a")
    assert own is not None
    assert (own.place, own.output_of(7, 1, "put")) == ("results", "deep/a")
    for job, epoch, operation in (
        (7, 2, "put"),
        (70, 1, "put"),
        (7, 1, "get"),
        (7, 1, "list"),
        (7, 1, "remove"),
    ):
        with pytest.raises(Forbidden):
            own.output_of(job, epoch, operation)
    other = sandbox_object(POLICY, "i", f"{BASE}/another-pool/outputs/7/1/a")
    assert other is not None
    with pytest.raises(Forbidden):
        other.output_of(7, 1, "put")
    assert sandbox_object(POLICY, "i", "s3://s3.example.org/data/copy-1/process/a") is None
    assert sandbox_object(POLICY, "i", "s3://elsewhere/data/sandboxes/i/outputs/7/1/a") is None


def test_objects_are_removed_before_their_records(tmp_path: Path) -> None:
    service = Service()
    context = context_of(tmp_path, service)
    delete_tries(context, 7, 1)
    assert service.removed == [f"{BASE}/i/outputs/7/1/a"]
    delete_outputs(context, 7)
    assert service.removed == [f"{BASE}/i/outputs/7/{epoch}/a" for epoch in (1, 2)]
    assert context.disk.sandbox.objects_of(7) == []


def test_records_stay_while_the_service_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    context = context_of(tmp_path, service)
    service.is_away = True
    with pytest.raises(Unreachable):
        delete_outputs(context, 7)
    with caplog.at_level(logging.WARNING):
        delete_outputs_or_leave(context, 7)
    assert "it does not answer" in caplog.text
    assert len(context.disk.sandbox.objects_of(7)) == 2
    service.is_away = False
    delete_outputs(context, 7)
    assert len(service.removed) == 2


def test_a_table_that_was_removed_is_told(tmp_path: Path) -> None:
    without = parse(TEXT.partition("[sandboxes]")[0])
    context = context_of(tmp_path, Service(), without)
    with pytest.raises(NotFound, match="no table `storage` of the policy has s3://"):
        delete_outputs(context, 7)
    assert len(context.disk.sandbox.objects_of(7)) == 2


def test_an_object_is_read_in_pieces(tmp_path: Path) -> None:
    contents = b"0123456789" * (PIECE // 10 + 100)
    context = context_of(tmp_path, Service(contents))
    [first, _] = context.disk.sandbox.objects_of(7)
    pieces = list(pieces_of(context, first))
    assert [len(piece) for piece in pieces] == [PIECE, len(contents) - PIECE]
    assert b"".join(pieces) == contents
