"""Input files of jobs in S3 services: clients write them by signed addresses, and the server asks for them by HEAD.

No byte of a file passes through the server. It asks services outside of transactions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection

from pilotage.core.errors import Conflict, InvalidInput, PilotageError, TooLarge, Unreachable
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.outside.storage.operations import S3Operation, StoredObject
from pilotage.server.context import Context
from pilotage.server.sandbox_objects import place_of, remove_objects, signed_request
from pilotage.services.jobs.sandbox_objects import input_place
from pilotage.wire.uploads import SentInput, SignedUpload, UploadedBytes

ASKED_AT_ONCE = 16
"""Objects in one question, so that a service that is away is noticed soon."""
KEPT_BEGUN = 2 * 86400.0
"""Seconds after which an upload that was begun is given up."""


def begin_upload(context: Context, owner: str, digest: str, asked: UploadedBytes) -> SignedUpload:
    """An address that takes exactly these bytes. Raises the reason if there is none."""
    policy = context.pool.policy
    place = input_place(context.pool)
    if place is None:
        raise Conflict("input files are sent to the server", hint="submit again")
    if asked.size > policy.jobs.max_input_file:
        raise TooLarge(f"the file has {asked.size:,} bytes", hint="jobs.max_input_file in the policy")
    try:
        is_sum = len(base64.b64decode(asked.md5, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_sum = False
    if not is_sum:
        raise InvalidInput(f"{asked.md5[:80]!r} is no MD5 sum in base64", field="md5")
    headers = (("content-length", str(asked.size)), ("content-md5", asked.md5))
    context.disk.sandbox.input_path(digest)  # refuses anything but a digest
    url = context.disk.sandbox.input_objects.begin(owner, digest, place.path, context.clock())
    signed = signed_request(context, place.name, S3Operation("put", url, headers=headers))
    return SignedUpload(url, signed.address, dict(headers))


def complete_upload(context: Context, owner: str, digest: str, sent: SentInput) -> None:
    """Store that an input file is there. Raises `Conflict` if it is not, `Unreachable` if nobody knows."""
    inputs = context.disk.sandbox.input_objects
    context.disk.sandbox.input_path(digest)  # refuses anything but a digest
    record = ObjectRecord(sent.url, sent.size, sent.etag)
    if inputs.find(owner, digest) == record:
        return  # The answer to an earlier call was lost.
    if not inputs.is_begun(owner, digest, sent.url):
        raise Conflict(f"no address was given for the file {digest}", hint="ask for one before it is sent")
    [there] = _ask(context, place_of(context, record), [record])
    if not _is_same(record, there):
        reason = there.problem or "the service has other contents"
        raise Conflict(f"the file {digest} is not in its storage: {reason}", hint="send it again")
    inputs.complete(owner, digest, record)


def stored_inputs(context: Context, owner: str, digests: Collection[str]) -> set[str]:
    """An owner's uploads whose bytes are there. Raises `Unreachable` if a service does not answer."""
    sandbox = context.disk.sandbox
    stored = {digest for digest in digests if sandbox.input_path(digest).exists()}
    by_place: dict[str, list[tuple[str, ObjectRecord]]] = {}
    for digest in dict.fromkeys(digests):
        if digest in stored:
            continue
        record = sandbox.input_objects.find(owner, digest)
        storage = context.pool.policy.storage_with(record.url) if record is not None else None
        if record is not None and storage is not None:
            by_place.setdefault(storage[0], []).append((digest, record))
    for place, known in by_place.items():
        for begin in range(0, len(known), ASKED_AT_ONCE):
            part = known[begin : begin + ASKED_AT_ONCE]
            answers = _ask(context, place, [record for _, record in part])
            pairs = zip(part, answers, strict=True)
            stored |= {digest for (digest, record), there in pairs if _is_same(record, there)}
    return stored


def _ask(context: Context, place: str, records: list[ObjectRecord]) -> list[StoredObject]:
    urls = [record.url for record in records]
    answers = context.work.storage.look_at(context.pool.policy, place, urls, context.clock())
    for there in answers:
        if there.is_unknown:
            raise Unreachable(f"storage {place} of input files: {there.problem}", hint="try again later")
    return answers


def _is_same(record: ObjectRecord, there: StoredObject) -> bool:
    return not there.problem and (there.size, there.etag) == (record.size, record.etag)


def remove_discarded_inputs(context: Context) -> None:
    """Remove the objects of deleted uploads, and of unfinished ones. Raises the reason if some are left."""
    inputs, errors = context.disk.sandbox.input_objects, list[PilotageError]()
    inputs.discard_begun(context.clock() - KEPT_BEGUN)
    for record in inputs.discarded():
        try:
            remove_objects(context, [record])
        except PilotageError as error:
            errors.append(error)
        else:
            inputs.forget(record)
    if errors:
        raise errors[0]
