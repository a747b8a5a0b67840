"""Files in S3 places: compared with the files that pilots have written before they are registered.

A service is asked outside of transactions, so one that is slow holds up the call of one pilot only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pilotage.core.errors import Conflict, Overloaded, TooLarge
from pilotage.core.policy import Policy
from pilotage.outside.storage.operations import StoredObject
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.wire.data import StoredFile
from pilotage.wire.pilot import Finish
from pilotage.wire.storage import SentOutput

_SCHEME = "s3://"

RETRY_AFTER = 5.0
"""Seconds until a pilot tells again of an output that the service could not be asked for."""

_threads = DaemonThreads("storage of a finish")


def has_objects(finishes: Sequence[Finish]) -> bool:
    """Whether a finish names files of S3 places."""
    return any((finish.files or finish.logs is not None) and _objects_of(finish) for finish in finishes)


def _objects_of(finish: Finish) -> list[StoredFile]:
    files = finish.files if finish.logs is None else [*finish.files, finish.logs]
    return [file for file in files if file.prefix.startswith(_SCHEME)]


async def check_objects(context: Context, finishes: Sequence[Finish]) -> None:
    """Turn a finish whose files are not there as they were written into that of a failed job."""
    for finish in finishes:
        problems = await _problems(context, _objects_of(finish))
        if finish.logs is not None and (reason := problems.get(id(finish.logs))):
            finish.logs = None
            finish.message = finish.message or f"its logs were not stored: {reason}"
        reason = next((problems[id(file)] for file in finish.files if id(file) in problems), "")
        if reason:
            finish.failure, finish.message, finish.files = "output", reason, []


async def complete_output(context: Context, path: Path, sent: SentOutput) -> None:
    """Store that the object of an output is complete. `path`: of its record.

    Raises `Overloaded` if the service does not answer, and `Conflict` if the object is not as it was written.
    """
    records, policy = context.disk.sandbox.objects, context.pool.policy
    record = await asyncio.to_thread(records.begun, path)
    storage = policy.storage_with(record.url) if record is not None else None
    if record is None or storage is None:
        raise Conflict(f"no address was given for {sent.name[:80]!r}", hint="ask for one before it is sent")
    if sent.size > policy.jobs.max_output_file:
        raise TooLarge(f"the file has {sent.size:,} bytes", hint="jobs.max_output_file in the policy")
    look, now = context.work.storage.look_at, context.clock()
    loop = asyncio.get_running_loop()
    [there] = await loop.run_in_executor(_threads, look, policy, storage[0], [record.url], now)
    if there.is_unknown:
        raise Overloaded(f"storage {storage[0]}: {there.problem}", retry_after=RETRY_AFTER)
    if reason := _difference(sent, there):
        raise Conflict(f"{sent.name[:80]!r} at {storage[0]}: {reason}", hint="send it again")
    await asyncio.to_thread(records.complete, path, sent.size, sent.etag)


async def _problems(context: Context, files: Sequence[StoredFile]) -> dict[int, str]:
    """The reasons against files, by their identity."""
    policy, problems = context.pool.policy, dict[int, str]()
    by_place: dict[str, list[StoredFile]] = defaultdict(list)
    for file in files:
        by_place[_place_of(policy, file)].append(file)
    for place, of_place in by_place.items():
        if not place:
            problems |= {id(file): f"{file.prefix} is in no table `storage.NAME`" for file in of_place}
            continue
        urls = [f"{file.prefix}/{file.name}" for file in of_place]
        look = context.work.storage.look_at
        asked = asyncio.get_running_loop().run_in_executor(
            _threads, look, policy, place, urls, context.clock()
        )
        for file, there in zip(of_place, await asked, strict=True):
            if reason := _difference(file, there):
                problems[id(file)] = f"{file.name} at {place}: {reason}"
    return problems


def _place_of(policy: Policy, file: StoredFile) -> str:
    """The name of the S3 place with a file; empty: the policy has none."""
    storage = policy.storage_with(file.prefix)
    return storage[0] if storage is not None and storage[1].type == "s3" else ""


def _difference(file: StoredFile | SentOutput, there: StoredObject) -> str:
    if there.problem:
        return there.problem
    if there.size != file.size:
        return f"the service has {there.size:,} bytes; the pilot has written {file.size:,}"
    if there.etag != file.etag:
        return "the service has other contents than the pilot has written"
    return ""
