"""Input files in an S3 service: which uploads count, whose they are, and the removal of those that nobody needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pilotage.core.errors import Conflict, InvalidInput, NotAuthenticated, TooLarge, Unreachable
from pilotage.core.policy import Policy, parse
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.outside.storage.operations import S3Operation, SignedRequest, StoredObject
from pilotage.server.context import Context
from pilotage.server.input_objects import (
    KEPT_BEGUN,
    begin_upload,
    complete_upload,
    remove_discarded_inputs,
    stored_inputs,
)
from pilotage.wire.uploads import SentInput, UploadedBytes

TEXT = """
[groups.users]
[users.ada]
groups = ["users"]
[jobs]
max_input_file = 1000
[sandboxes]
inputs = "files"
[storage.files]
type = "s3"
[storage.files.s3]
endpoint = "https://s3.example.org"
bucket = "data"
"""
POLICY = parse(TEXT)
DIGEST = hashlib.sha256(b"contents").hexdigest()
BYTES = UploadedBytes(8, "mgNkuembtIDdJeHwKEyFVQ==")


class Service:
    """The S3 service, as the server has it: the objects by address."""

    def __init__(self) -> None:
        self.is_away = self.has_no_key = False
        self.objects: dict[str, StoredObject] = {}
        self.signed: list[S3Operation] = []

    def sign(self, policy: Policy, name: str, operation: S3Operation, now: float) -> SignedRequest:
        if self.has_no_key:
            raise NotAuthenticated("there is no key")
        self.signed.append(operation)
        return SignedRequest("PUT", f"https://s3.example.org/{len(self.signed)}")

    def look_at(self, policy: Policy, name: str, urls: Sequence[str], now: float) -> list[StoredObject]:
        if self.is_away:
            return [StoredObject(problem="it does not answer", is_unknown=True)] * len(urls)
        return [self.objects.get(url, StoredObject(problem="no such object")) for url in urls]

    def remove(self, policy: Policy, name: str, urls: Sequence[str], now: float) -> None:
        if self.is_away:
            raise Unreachable("it does not answer")
        for url in urls:
            self.objects.pop(url, None)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def context(tmp_path: Path, service: Service) -> Context:
    server = SimpleNamespace(instance="i")
    return cast(
        Context,
        SimpleNamespace(
            disk=SimpleNamespace(sandbox=DirectorySandbox(tmp_path)),
            pool=SimpleNamespace(policy=POLICY, server=server),
            work=SimpleNamespace(storage=service),
            clock=Clock(),
        ),
    )


def upload(context: Context, service: Service, owner: str = "ada", etag: str = "e") -> SentInput:
    """An upload whose object the service has."""
    url = begin_upload(context, owner, DIGEST, BYTES).url
    service.objects[url] = StoredObject(8, etag)
    return SentInput(url, 8, etag)


def test_the_policy_names_a_bucket() -> None:
    with pytest.raises(InvalidInput, match="there is no storage elsewhere of type s3"):
        parse(TEXT.replace('inputs = "files"', 'inputs = "elsewhere"'))


def test_an_address_takes_one_file_of_one_owner(context: Context, service: Service) -> None:
    signed = begin_upload(context, "ada", DIGEST, BYTES)
    assert signed.url.startswith(f"s3://s3.example.org/data/sandboxes/i/inputs/{DIGEST}/")
    assert signed.headers == {"content-length": "8", "content-md5": BYTES.md5}
    assert dict(service.signed[0].headers) == signed.headers
    assert begin_upload(context, "ada", DIGEST, BYTES).url != signed.url
    with pytest.raises(TooLarge):
        begin_upload(context, "ada", DIGEST, UploadedBytes(1001, BYTES.md5))
    for digest, md5 in ((DIGEST, "short"), (DIGEST, "mgNkuembtIDd"), ("../x", BYTES.md5)):
        with pytest.raises(InvalidInput):
            begin_upload(context, "ada", digest, UploadedBytes(8, md5))
    service.has_no_key = True
    with pytest.raises(Conflict, match="there is no key"):
        begin_upload(context, "ada", DIGEST, BYTES)


def test_an_upload_counts_once_the_service_has_it(context: Context, service: Service) -> None:
    sent = upload(context, service)
    service.is_away = True
    with pytest.raises(Unreachable):
        complete_upload(context, "ada", DIGEST, sent)
    service.is_away = False
    for wrong in (
        SentInput(sent.url, 9, "e"),
        SentInput(sent.url, 8, "other"),
        SentInput(sent.url + "0", 8, "e"),
    ):
        with pytest.raises(Conflict):
            complete_upload(context, "ada", DIGEST, wrong)
    with pytest.raises(Conflict):
        complete_upload(context, "bob", DIGEST, sent)
    assert stored_inputs(context, "ada", [DIGEST]) == set()
    for _ in range(2):  # the answer may be lost
        complete_upload(context, "ada", DIGEST, sent)
    assert stored_inputs(context, "ada", [DIGEST]) == {DIGEST}
    assert stored_inputs(context, "bob", [DIGEST]) == set(), "nobody has what others have sent"


def test_a_file_that_changed_or_is_gone_is_sent_again(context: Context, service: Service) -> None:
    sent = upload(context, service)
    complete_upload(context, "ada", DIGEST, sent)
    service.objects[sent.url] = StoredObject(8, "changed")
    assert stored_inputs(context, "ada", [DIGEST]) == set()
    service.is_away = True
    with pytest.raises(Unreachable):
        stored_inputs(context, "ada", [DIGEST])
    service.is_away = False
    again = upload(context, service)
    complete_upload(context, "ada", DIGEST, again)
    assert stored_inputs(context, "ada", [DIGEST]) == {DIGEST}
    remove_discarded_inputs(context)
    assert list(service.objects) == [again.url], "the changed one is removed"


def test_the_removal_of_a_file_never_touches_a_new_upload_of_it(context: Context, service: Service) -> None:
    inputs = context.disk.sandbox.input_objects
    for owner in ("ada", "bob"):
        complete_upload(context, owner, DIGEST, upload(context, service, owner))
    inputs.discard(DIGEST)
    assert stored_inputs(context, "ada", [DIGEST]) == set()
    new = upload(context, service)
    complete_upload(context, "ada", DIGEST, new)
    service.is_away = True
    with pytest.raises(Unreachable):
        remove_discarded_inputs(context)
    service.is_away = False
    remove_discarded_inputs(context)
    assert list(service.objects) == [new.url]
    assert inputs.discarded() == []
    assert stored_inputs(context, "ada", [DIGEST]) == {DIGEST}


def test_an_upload_that_nobody_completes_is_removed(context: Context, service: Service) -> None:
    sent = upload(context, service)
    remove_discarded_inputs(context)
    assert list(service.objects) == [sent.url]
    cast(Clock, context.clock).now += KEPT_BEGUN
    remove_discarded_inputs(context)
    assert service.objects == {}
    with pytest.raises(Conflict):
        complete_upload(context, "ada", DIGEST, sent)
