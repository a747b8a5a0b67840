"""A limit shared by several servers: the remaining starts are divided into allocations, one per server.

A running limit of N is N *places*. At any time each place is free (`UnleasedRoom.free`), or leased to a server
(`Allocation.free`), or used by a job that was offered or runs there. A start takes a place from the allocation of the
server that makes it. An end adds the place to the allocation of the server that learns of it. So there are never more
than N jobs, even when a server dies: its unused places become free, and its jobs keep theirs.

A start delay is a bucket of `burst` *tokens*, including the tokens that servers have borrowed. The bucket fills from
the last start under the limit on any server, so no start comes earlier than the delay allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import ceil, floor

from pilotage.core.queues.limits import Limit


@dataclass(frozen=True, slots=True)
class UnleasedRoom:
    """The places and starts of one limit that no server holds. `free` below 0: the limit is over-allocated."""

    running: int | None
    """The N from which `free` was computed."""
    free: int
    starts: float
    """Tokens, as of `since`."""
    since: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """The places and starts of a limit leased to one server, and the server's last start under it."""

    free: int = 0
    starts: int = 0
    last_start: float = 0.0
    wants: bool = False
    """Jobs wait that the server could start with more places or starts."""


def establish(limit: Limit, held: int, now: float) -> UnleasedRoom:
    """A new limit of which `held` jobs have a place already. The first starts may be made at once."""
    free = limit.running - held if limit.running is not None else 0
    return UnleasedRoom(limit.running, free, float(limit.burst), now)


def replace_limit(limit: Limit, shared: UnleasedRoom) -> UnleasedRoom:
    """The limit with the number of places of the policy in force."""
    before, after = shared.running, limit.running
    if before is None:
        # The jobs that hold a place were never counted: the limit is closed until `recount`.
        return shared
    if after is None:
        return replace(shared, running=None)
    return replace(shared, running=after, free=shared.free + after - before)


def recount(limit: Limit, shared: UnleasedRoom, held: int, allocations: Iterable[Allocation]) -> UnleasedRoom:
    """The limit with its free places computed from the `held` jobs that have one."""
    if limit.running is None:
        return shared
    return replace(
        shared,
        running=limit.running,
        free=limit.running - held - sum(allocation.free for allocation in allocations),
    )


def refill(
    limit: Limit, shared: UnleasedRoom, allocations: Collection[Allocation], now: float
) -> UnleasedRoom:
    """The limit with the tokens gained until now."""
    if not limit.delay:
        return shared
    room = limit.burst - sum(allocation.starts for allocation in allocations)
    began = (
        max(shared.since, *(allocation.last_start for allocation in allocations))
        if allocations
        else shared.since
    )
    # After a clock stepped back, the wait is counted from now.
    gained = max(0.0, now - began) / limit.delay
    return replace(shared, starts=max(0.0, min(float(room), shared.starts + gained)), since=now)


def lend(
    limit: Limit, shared: UnleasedRoom, mine: Allocation, others: Collection[Allocation], now: float
) -> tuple[UnleasedRoom, Allocation]:
    """Lend a server a part of the free places and starts, and leave a part for each peer."""
    everybody = len(others) + 1
    if limit.running is not None and shared.free > 0 and not mine.free:
        part = ceil(shared.free / everybody)
        shared, mine = replace(shared, free=shared.free - part), replace(mine, free=mine.free + part)
    if limit.delay:
        shared = refill(limit, shared, [mine, *others], now)
        # Rounding must not close a limit at the very instant that opens it.
        whole = floor(shared.starts + 1e-9)
        if whole and not mine.starts:
            part = ceil(whole / everybody)
            shared = replace(shared, starts=max(0.0, shared.starts - part))
            mine = replace(mine, starts=mine.starts + part)
    return shared, mine


def give_back(
    limit: Limit, shared: UnleasedRoom, mine: Allocation, keep: Allocation
) -> tuple[UnleasedRoom, Allocation]:
    """Return all places and starts of a server beyond `keep`."""
    free, starts = max(0, mine.free - keep.free), max(0, mine.starts - keep.starts)
    return (
        replace(shared, free=shared.free + free, starts=shared.starts + starts),
        replace(mine, free=mine.free - free, starts=mine.starts - starts),
    )


def evict(shared: UnleasedRoom, gone: Allocation) -> UnleasedRoom:
    """Free the places of a dead server. Its tokens count as used."""
    return replace(shared, free=shared.free + gone.free, since=max(shared.since, gone.last_start))


def may_start(limit: Limit, shared: UnleasedRoom | None, mine: Allocation) -> bool:
    """Whether a server may start one job now.

    False until the limit matches the policy, or while it is over-allocated.
    """
    if shared is None:
        return False
    if limit.running is not None and (mine.free <= 0 or shared.free < 0 or shared.running != limit.running):
        return False
    return not limit.delay or mine.starts > 0


def record_start(limit: Limit, mine: Allocation, now: float) -> Allocation:
    """The allocation after one job of the limit was offered."""
    return replace(
        mine,
        free=mine.free - 1 if limit.running is not None else mine.free,
        starts=max(0, mine.starts - 1) if limit.delay else 0,
        last_start=max(mine.last_start, now),
    )


def record_end(limit: Limit, mine: Allocation) -> Allocation:
    """The allocation after one job of the limit has left its place."""
    return replace(mine, free=mine.free + 1) if limit.running is not None else mine
