"""A limit shared by several servers: the remaining starts are divided into allocations, one per server.

A running limit of N is N *places*. Each is in one hand at any time: nobody's (`UnleasedRoom.free`), a server's
(`Allocation.free`), or that of a job that was offered or runs there. A start takes a place from the server
that makes it, an end puts it into the block of the server that learns of it. So no more than N jobs are ever there,
whatever becomes of a server: its places go back to nobody, those of its jobs stay with the jobs.

Starts every so many seconds are *tokens* of one bucket that holds `burst` of them, those that servers have borrowed
included. The bucket fills from the last start that anybody made, which is never earlier than the rule would have it.
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
    """The N that `free` was reckoned with."""
    free: int
    starts: float
    """Tokens, as of `since`."""
    since: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """The places and starts that one server holds of a limit, and its last start under it."""

    free: int = 0
    starts: int = 0
    last_start: float = 0.0
    wants: bool = False
    """Jobs wait that it could start if it had more."""


def establish(limit: Limit, held: int, now: float) -> UnleasedRoom:
    """A limit that was not there before: `held` jobs have a place already. The first starts may be made at once."""
    free = limit.running - held if limit.running is not None else 0
    return UnleasedRoom(limit.running, free, float(limit.burst), now)


def replace_limit(limit: Limit, shared: UnleasedRoom) -> UnleasedRoom:
    """The same with the number that the policy has now."""
    before, after = shared.running, limit.running
    if before is None:
        # Nobody has counted who is there: the limit is closed until `counted`.
        return shared
    if after is None:
        return replace(shared, running=None)
    return replace(shared, running=after, free=shared.free + after - before)


def recount(limit: Limit, shared: UnleasedRoom, held: int, blocks: Iterable[Allocation]) -> UnleasedRoom:
    """The same with the free places recounted from the jobs that hold one."""
    if limit.running is None:
        return shared
    return replace(shared, running=limit.running, free=limit.running - held - sum(b.free for b in blocks))


def refill(limit: Limit, shared: UnleasedRoom, blocks: Collection[Allocation], now: float) -> UnleasedRoom:
    """The same with the tokens of now."""
    if not limit.delay:
        return shared
    room = limit.burst - sum(block.starts for block in blocks)
    began = max(shared.since, *(block.last_start for block in blocks)) if blocks else shared.since
    # Of a clock that stepped back: the wait is counted from now.
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
    """The same after a server has returned all places and starts beyond `keep`."""
    free, starts = max(0, mine.free - keep.free), max(0, mine.starts - keep.starts)
    return (
        replace(shared, free=shared.free + free, starts=shared.starts + starts),
        replace(mine, free=mine.free - free, starts=mine.starts - starts),
    )


def evict(shared: UnleasedRoom, gone: Allocation) -> UnleasedRoom:
    """The same without a server that is dead: its places are nobody's; its tokens count as used."""
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
    """One job of the limit was offered."""
    return replace(
        mine,
        free=mine.free - 1 if limit.running is not None else mine.free,
        starts=max(0, mine.starts - 1) if limit.delay else 0,
        last_start=max(mine.last_start, now),
    )


def record_end(limit: Limit, mine: Allocation) -> Allocation:
    """One job of the limit has left its place."""
    return replace(mine, free=mine.free + 1) if limit.running is not None else mine
