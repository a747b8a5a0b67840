"""Routes for storage that is no folder of the nodes."""

from __future__ import annotations

import asyncio

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.wire.limits import GivenName
from pilotage.wire.storage import LIST_STORAGE, TEST_STORAGE, StorageSummary

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
