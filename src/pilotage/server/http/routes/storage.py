"""Routes for storage that is no folder of the nodes."""

from __future__ import annotations

import asyncio

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.plurals import plural
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.services.audit import audited
from pilotage.services.jobs.unclaimed import unclaimed_objects
from pilotage.wire.limits import GivenName
from pilotage.wire.storage import (
    LIST_STORAGE,
    LIST_UNCLAIMED,
    REMOVE_UNCLAIMED,
    TEST_STORAGE,
    StorageSummary,
    UnclaimedPage,
    UnclaimedQuery,
)

router = CallRouter("storage")

_threads = DaemonThreads("storage of a request")


@router.call(LIST_STORAGE)
def list_storage(context: TheContext, _: TheCaller) -> list[StorageSummary]:
    """The tables `storage` of the policy, and how S3 services answer."""
    return [_summary(context, name) for name in sorted(context.pool.policy.storage)]


def _summary(context: Context, name: str) -> StorageSummary:
    place, state = context.pool.policy.storage[name], context.work.storage.states.get(name)
    if state is None:
        return StorageSummary(name, place.type, place.address)
    return StorageSummary(name, place.type, place.address, state.problem, state.since)


@router.call(LIST_UNCLAIMED)
async def list_unclaimed(
    storage: GivenName, asked: UnclaimedQuery, context: TheContext, _: TheCaller
) -> UnclaimedPage:
    """A page of the outputs in an S3 service that refused attempts have stored, and that no data set names."""
    return await asyncio.get_running_loop().run_in_executor(
        _threads, _unclaimed, context, storage, asked.after
    )


@router.call(REMOVE_UNCLAIMED)
async def remove_unclaimed(
    storage: GivenName, body: UnclaimedQuery, context: TheContext, caller: TheCaller
) -> UnclaimedPage:
    """Remove a page of the unclaimed outputs; returns them. Just before, each of them is looked at again."""
    loop = asyncio.get_running_loop()
    page = await loop.run_in_executor(_threads, _unclaimed, context, storage, body.after)
    if page.objects:
        policy, urls = context.pool.policy, [row.url for row in page.objects]
        remove, now = context.work.storage.remove, context.clock()
        await loop.run_in_executor(_threads, remove, policy, storage, urls, now)
        called = audited_call(context, caller, REMOVE_UNCLAIMED, f"storage {storage}")
        effect = f"{plural(len(urls), 'object')} removed, from {urls[0]} on"
        await context.writer.acall(audited(called, lambda tx: None, made=lambda _: effect))
    return page


def _unclaimed(context: Context, storage: str, after: str) -> UnclaimedPage:
    """A page of the unclaimed objects. Raises `Unreachable` if the service does not tell all of its own page."""
    policy, now = context.pool.policy, context.clock()
    listed = context.work.storage.list_objects(policy, storage, after, now)
    place = policy.storage[storage].s3
    # An address that was given can be used for a while, and a pilot may come back within its lease.
    before = now - max(place.lifetime, *(ce.lease for ce in policy.ces.values()))
    objects = unclaimed_objects(context.readers.connection(), place.address, listed.objects, before)
    return UnclaimedPage(objects, "" if listed.is_last else listed.objects[-1].url)


@router.call(TEST_STORAGE)
async def ask_storage(storage: GivenName, context: TheContext, _: TheCaller) -> StorageSummary:
    """Ask an S3 service now whether its bucket is there and can be listed."""
    policy = context.pool.policy
    place = policy.storage.get(storage)
    if place is None:
        raise NotFound(f"the policy has no storage {storage}", hint="see `pilotage storage list`")
    if place.type != "s3":
        raise InvalidInput(f"storage {storage} is used by programs of the nodes: the server cannot ask it")
    check, now = context.work.storage.check, context.clock()
    await asyncio.get_running_loop().run_in_executor(_threads, check, policy, storage, now)
    return _summary(context, storage)
