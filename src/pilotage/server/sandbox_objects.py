"""The files of sandboxes that lie in S3 services, as routes and duties read and remove them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pilotage.core.errors import Conflict, NotAuthenticated, NotFound, PilotageError
from pilotage.outside.sandbox.object_records import ObjectRecord
from pilotage.outside.storage.operations import ObjectPiece, S3Operation, SignedRequest
from pilotage.server.context import Context

log = logging.getLogger(__name__)

PIECE = 4 << 20
"""Bytes that are asked for at once, and are in memory."""


def signed_request(context: Context, place: str, operation: S3Operation) -> SignedRequest:
    """A request that its receiver can send for a while. Raises the reason if there is none."""
    try:
        return context.work.storage.sign(context.pool.policy, place, operation, context.clock())
    except NotAuthenticated as error:
        # The server has no key; the token of the caller is right.
        raise Conflict(f"storage {place}: {error.message}", hint=error.hint) from None


def read_object(context: Context, record: ObjectRecord, offset: int, most: int) -> bytes:
    """A piece of an object; less at its end. Raises the reason if it cannot be read, or has changed."""
    most = min(most, record.size - offset)
    if most <= 0:
        return b""
    policy = context.pool.policy
    piece = ObjectPiece(record.url, record.etag, offset, most)
    return context.work.storage.read(policy, place_of(context, record), piece, context.clock())


def pieces_of(context: Context, record: ObjectRecord) -> Iterator[bytes]:
    """The bytes of an object. Raises as `read_object`."""
    done = 0
    while piece := read_object(context, record, done, PIECE):
        done += len(piece)
        yield piece


def delete_outputs(context: Context, job: int) -> None:
    """Delete the outputs of a job. Raises the reason if an S3 service may still have an output: try again."""
    remove_objects(context, context.disk.sandbox.objects_of(job))
    context.disk.sandbox.delete_outputs(job)


def delete_outputs_or_leave(context: Context, job: int) -> None:
    """Delete the outputs of a job, or leave them to the retention of jobs if their S3 service does not serve."""
    try:
        delete_outputs(context, job)
    except PilotageError as error:
        log.warning("the outputs of the deleted job %d are left until its row expires: %s", job, error)


def delete_tries(context: Context, job: int, epoch: int) -> None:
    """Delete the files of tries up to `epoch`. Raises as `delete_outputs`."""
    remove_objects(context, context.disk.sandbox.objects_of(job, epoch))
    context.disk.sandbox.delete_tries(job, epoch)


def remove_objects(context: Context, records: Sequence[ObjectRecord]) -> None:
    """Remove objects at their places. Raises the reason if one of them may be left."""
    by_place: dict[str, list[str]] = defaultdict(list)
    for record in records:
        by_place[place_of(context, record)].append(record.url)
    for place, urls in by_place.items():
        context.work.storage.remove(context.pool.policy, place, urls, context.clock())


def place_of(context: Context, record: ObjectRecord) -> str:
    storage = context.pool.policy.storage_with(record.url)
    if storage is None:
        raise NotFound(
            f"no table `storage` of the policy has {record.url}",
            hint="the table stays in the policy as long as jobs have files there",
        )
    return storage[0]
