"""Files in S3 places: compared with the files that pilots have written before they are registered.

A service is asked outside of transactions, so one that is slow holds up the call of one pilot only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pilotage.core.errors import Conflict, Overloaded, TooLarge
from pilotage.core.policy import Policy
from pilotage.outside.storage.operations import StoredObject
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.wire.data import StoredFile
from pilotage.wire.pilot import ExchangeRequest, Finish
from pilotage.wire.storage import SentOutput

_SCHEME = "s3://"

RETRY_AFTER = 5.0
"""Seconds until a pilot tells again of an output that the service could not be asked for."""

PAUSES = (1.0, 2.0)
"""Seconds before the service is asked again for a file that it does not tell of.

A new object may not be known everywhere at once, and a key may just be replaced.
"""

LONGEST = 8.0
"""Seconds after which nothing is asked again: the pilot waits for the answer to its message."""

_threads = DaemonThreads("storage of a finish")


def has_objects(finishes: Sequence[Finish]) -> bool:
    """Whether a finish names files of S3 places."""
    return any((finish.files or finish.logs is not None) and _objects_of(finish) for finish in finishes)


def _objects_of(finish: Finish) -> list[StoredFile]:
    files = finish.files if finish.logs is None else [*finish.files, finish.logs]
    return [file for file in files if file.prefix.startswith(_SCHEME)]


async def check_objects(context: Context, messages: Sequence[ExchangeRequest]) -> None:
    """Turn a finish whose files are not there as they were written into that of a failed job.

    A finish whose files the service does not tell of is taken out of its message: it has no verdict, so its pilot
    sends it again. Raises `Overloaded` if the pilot would leave after the message.
    """
    files = [file for message in messages for finish in message.finishes for file in _objects_of(finish)]
    problems = await _problems(context, files)
    for message in messages:
        checked = [finish for finish in message.finishes if _is_checked(finish, problems)]
        if len(checked) < len(message.finishes) and messages[-1].leaving:
            raise Overloaded("the storage of a finish does not answer", retry_after=RETRY_AFTER)
        message.finishes[:] = checked


def _is_checked(finish: Finish, problems: Mapping[int, StoredObject]) -> bool:
    """Whether all is known of the files of a finish. It is changed by problems that stay."""
    own = {id(file): problems[id(file)] for file in _objects_of(finish) if id(file) in problems}
    if any(there.is_unknown for there in own.values()):
        return False
    if finish.logs is not None and (trouble := own.get(id(finish.logs))):
        finish.logs = None
        finish.message = finish.message or f"its logs were not stored: {trouble.problem}"
    reason = next((own[id(file)].problem for file in finish.files if id(file) in own), "")
    if reason:
        finish.failure, finish.message, finish.files = "output", reason, []
    return True


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


async def _problems(context: Context, files: Sequence[StoredFile]) -> dict[int, StoredObject]:
    """The files that are not as they were written, by their identity, each with its problem."""
    policy, problems = context.pool.policy, dict[int, StoredObject]()
    by_place: dict[str, list[StoredFile]] = defaultdict(list)
    for file in files:
        by_place[_place_of(policy, file)].append(file)
    for file in by_place.pop("", ()):
        problems[id(file)] = StoredObject(problem=f"{file.prefix} is in no table `storage.NAME`")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for place, asked in by_place.items():
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            objects = await _look_at(context, place, asked)
            for file, there in zip(asked, objects, strict=True):
                reason = _difference(file, there)
                problems[id(file)] = there._replace(problem=reason and f"{file.name} at {place}: {reason}")
            asked = [file for file in asked if problems[id(file)].problem]
            if not asked or loop.time() - begun > LONGEST:
                break
    return {key: there for key, there in problems.items() if there.problem}


async def _look_at(context: Context, place: str, files: Sequence[StoredFile]) -> list[StoredObject]:
    """Each of these files as the service tells it."""
    urls = [f"{file.prefix}/{file.name}" for file in files]
    look, loop = context.work.storage.look_at, asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, look, context.pool.policy, place, urls, context.clock())


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
